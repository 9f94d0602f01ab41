//! Ours beside theirs: for each shape our best row, every other library's, who is faster and by how much, and whether the
//! two were measured under the same conditions at all.

use super::peers::{Card, File, Recorded, matching};
use crate::error::Result;
use crate::op::Shape;
use serde::Serialize;

/// Clocks closer than this are the same, relative.
const SAME_CLOCK: f64 = 0.01;

/// One shape's contestants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contest {
    pub op: String,
    pub shape: String,
    /// Our fastest right variant.
    pub ours: Recorded,
    /// The others, fastest first, wrong ones last.
    pub peers: Vec<Recorded>,
    /// Our time over the fastest right peer's; absent where there is none.
    pub ratio: Option<f64>,
    /// Who was fastest: `ours`, or the peer.
    pub best: String,
}

/// Every shape that ours has and a peer too, in our order; `op` narrows it to one op.
///
/// # Errors
/// A recorded shape that cannot be read.
pub fn contests(ours: &[Recorded], theirs: &[File], op: Option<&str>) -> Result<Vec<Contest>> {
    let mut done: Vec<Contest> = Vec::new();
    for row in ours.iter().filter(|r| !r.peer && op.is_none_or(|op| r.op == op)) {
        let shape = Shape::parse(&row.shape)?;
        // Recorded twice in other words, it is one contest.
        if !matching(done.iter().map(|c| &c.ours), &row.op, &shape).is_empty() {
            continue;
        }
        let mine = matching(ours, &row.op, &shape);
        let Some(best) = mine.iter().find(|r| !r.peer && !r.wrong) else { continue };
        let beside = mine.iter().filter(|r| r.peer).copied();
        let all = beside.chain(theirs.iter().flat_map(|f| matching(&f.rows, &row.op, &shape)).filter(|r| r.peer));
        let mut peers: Vec<Recorded> = all.cloned().collect();
        peers.sort_by(|a, b| a.wrong.cmp(&b.wrong).then(a.ns.total_cmp(&b.ns)));
        // One file may be both sides.
        peers.dedup();
        if peers.is_empty() {
            continue;
        }
        let rival = peers.first().filter(|r| !r.wrong);
        let ratio = rival.map(|r| best.ns / r.ns);
        done.push(Contest {
            op: row.op.clone(),
            shape: row.shape.clone(),
            best: rival.filter(|r| r.ns < best.ns).map_or_else(|| "ours".into(), |r| r.name.clone()),
            ours: (*best).clone(),
            peers,
            ratio,
        });
    }
    Ok(done)
}

/// What makes a comparison of two files doubtful, one sentence each.
pub fn doubts(ours: &Card, theirs: &Card) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, a: Option<String>, b: Option<String>, matters: &str| match (a, b) {
        (Some(a), Some(b)) if a != b => {
            found.push(format!("{what}: {a} in {}, {b} in {}; {matters}", ours.file, theirs.file));
        }
        (Some(_), Some(_)) => {}
        (a, _) => {
            let silent = if a.is_none() { &ours.file } else { &theirs.file };
            found.push(format!("{what}: {silent} does not say"));
        }
    };
    let watts = |c: &Card| c.power_limit_w.map(|w| format!("{w:.0} W"));
    differ("GPU", ours.gpu.clone(), theirs.gpu.clone(), "the times cannot be compared");
    differ(
        "card",
        ours.uuid_tail.clone(),
        theirs.uuid_tail.clone(),
        "two boards of one kind differ by 2 to 3 %: smaller differences mean nothing",
    );
    differ("driver", ours.driver.clone(), theirs.driver.clone(), "measure both again under one");
    differ("power limit", watts(ours), watts(theirs), "large products run at what it allows");
    match (ours.sm_mhz, theirs.sm_mhz) {
        (Some(a), Some(b)) if (a as f64 / b as f64 - 1.0).abs() > SAME_CLOCK => {
            found.push(format!("SM clock: {a} MHz in {}, {b} MHz in {}", ours.file, theirs.file));
        }
        _ => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::peers::parse;

    fn file(name: &str, card: &str, rows: &[(&str, &str, &str, f64)]) -> File {
        let mut text = format!("{{\"environment\":{{{card}}}}}\n");
        for (op, name, shape, ns) in rows {
            let (who, peer) = name.split_once('!').map_or((*name, ""), |(_, p)| (p, p));
            let mut row = serde_json::json!({"op": op, "variant": who, "shape": shape, "ns": ns});
            if !peer.is_empty() {
                row["peer"] = peer.into();
            }
            text += &format!("{row}\n");
        }
        parse(name, &text).unwrap()
    }

    const CARD: &str = r#""gpu":"H200","uuid_tail":"a","driver":"580","power_limit_w":700.0,"after":{"sm_mhz":1980}"#;

    #[test]
    fn each_shape_has_one_contest_and_the_fastest_wins() {
        let ours = file(
            "ours",
            CARD,
            &[
                ("matmul", "gemv", "m=1,n=4096,k=4096", 12_000.0),
                ("matmul", "naive", "m=1,n=4096,k=4096", 90_000.0),
                ("matmul", "!cublaslt", "m=1,n=4096,k=4096", 13_000.0),
                ("matmul", "gemv", "m=2,n=4096,k=4096", 14_000.0),
                ("softmax", "fused", "rows=8,cols=8", 1_000.0),
            ],
        );
        let theirs = file("theirs", CARD, &[("matmul", "!cublas", "n=4k,k=4k,m=2,dtype=bf16", 13_500.0)]);
        let all = contests(&ours.rows, std::slice::from_ref(&theirs), None).unwrap();
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!((all[0].best.as_str(), all[0].ours.name.as_str()), ("ours", "gemv"));
        assert_eq!((all[1].best.as_str(), all[1].peers.len()), ("cublas", 1));
        assert!((all[1].ratio.unwrap() - 14.0 / 13.5).abs() < 1e-9);
        assert!(contests(&ours.rows, std::slice::from_ref(&theirs), Some("softmax")).unwrap().is_empty());
        let mut wrong = theirs;
        wrong.rows[0].wrong = true;
        let all = contests(&ours.rows, &[wrong], None).unwrap();
        assert_eq!((all[1].best.as_str(), all[1].ratio), ("ours", None), "a wrong result wins nothing");
    }

    #[test]
    fn another_card_driver_or_clock_is_told() {
        let one = file("one", CARD, &[("matmul", "gemv", "m=1,n=8,k=8", 1.0)]).card;
        assert!(doubts(&one, &one).is_empty());
        for (from, to, says) in [
            ("\"H200\"", "\"H100\"", "GPU: H200 in one, H100 in two"),
            ("\"a\"", "\"b\"", "two boards"),
            ("580", "575", "driver: 580"),
            ("700.0", "500.0", "power limit: 700 W"),
            ("1980", "1755", "SM clock: 1980 MHz"),
            ("\"driver\":\"580\",", "", "driver: two does not say"),
        ] {
            let two = file("two", &CARD.replace(from, to), &[("matmul", "!x", "m=1,n=8,k=8", 1.0)]).card;
            let found = doubts(&one, &two);
            assert!(found.len() == 1 && found[0].contains(says), "{found:?}");
        }
    }
}
