//! Lists of shapes over many ops, as text: `OP SHAPE` a line, `#` begins a comment.

use super::draw::{COUNT, draw};
use crate::error::{Error, Result};
use crate::kernels;
use crate::op::{Op, Shape};
use std::path::Path;

/// One op at one shape.
pub type Case = (&'static dyn Op, Shape);

/// Lists that are built in, by name.
pub const BUILT_IN: [(&str, &str); 2] = [
    ("calibration", include_str!("../../data/sweeps/calibration.txt")),
    ("decode", include_str!("../../data/sweeps/decode.txt")),
];

/// The cases of a built-in list or of a file.
///
/// # Errors
/// No such list or file; a line that is not an op and a shape, with its number; a case that comes twice; none at all.
pub fn find(name: &str) -> Result<Vec<Case>> {
    if let Some(drawn) = name.strip_prefix("drawn:") {
        let (seed, count) = drawn.split_once('x').map_or((drawn, None), |(seed, count)| (seed, Some(count)));
        let number = |text: &str| text.parse::<u64>().ok();
        let count = count.map_or(Some(COUNT as u64), number).filter(|c| (1..=100_000).contains(c));
        return match (number(seed), count) {
            (Some(seed), Some(count)) => draw(seed, count as usize),
            _ => Err(Error::usage(format!("{name} is no list")).try_next("drawn:SEED, or drawn:SEEDxCOUNT")),
        };
    }
    if let Some((_, text)) = BUILT_IN.iter().find(|(n, _)| *n == name) {
        return parse(name, text);
    }
    let text = std::fs::read_to_string(Path::new(name)).map_err(|e| {
        let known = BUILT_IN.map(|(n, _)| n).join(", ");
        Error::usage(format!("cannot read the list of shapes {name}: {e}"))
            .try_next(format!("a file of lines `OP SHAPE`, or a built-in list: {known}"))
    })?;
    parse(name, &text)
}

/// The cases of a list's text; `name` stands in errors.
pub fn parse(name: &str, text: &str) -> Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let at = || format!("{name} line {}", i + 1);
        let (op, shape) = line
            .split_once(char::is_whitespace)
            .ok_or_else(|| Error::usage(format!("{}: `{line}` is not OP SHAPE", at())))?;
        let op = kernels::op(op).map_err(|e| Error::from(e).at(at()))?;
        let shape = Shape::parse(shape).map_err(|e| Error::from(e).at(at()))?;
        if cases.iter().any(|(o, s)| o.name() == op.name() && *s == shape) {
            return Err(Error::usage(format!("{}: {} {shape} comes twice", at(), op.name())));
        }
        cases.push((op, shape));
    }
    if cases.is_empty() {
        return Err(Error::usage(format!("{name} lists no shape")));
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Chip;
    use crate::roofline::coordinates::Place;

    #[test]
    fn the_built_in_lists_run_cover_every_op_and_share_no_shape() {
        let [calibration, decode] = ["calibration", "decode"].map(|n| find(n).unwrap());
        assert!(decode.len() >= 200, "{}", decode.len());
        for (op, shape) in calibration.iter().chain(&decode) {
            let chosen = op.choose(shape, &Chip::H200);
            op.supports(chosen, shape, &Chip::H200).unwrap_or_else(|e| panic!("{} {shape}: {e}", op.name()));
            op.cost(shape).unwrap();
        }
        for op in kernels::OPS {
            assert!(decode.iter().any(|(o, _)| o.name() == op.name()), "{} is in no sweep", op.name());
        }
        for (op, shape) in &decode {
            let here = Place::of(op.name(), shape);
            let near = calibration.iter().filter(|(o, _)| o.name() == op.name());
            assert!(near.map(|(_, s)| Place::of(op.name(), s)).all(|p| !p.same_work(&here)), "{} {shape}", op.name());
        }
    }

    #[test]
    fn drawn_lists_come_again_run_cover_every_op_and_share_no_shape() {
        let (drawn, again, other) =
            (find("drawn:7x300").unwrap(), find("drawn:7x300").unwrap(), find("drawn:8").unwrap());
        let text = |cases: &[Case]| cases.iter().map(|(op, s)| format!("{} {s}", op.name())).collect::<Vec<_>>();
        assert_eq!((drawn.len(), other.len()), (300, COUNT));
        assert!(text(&drawn) == text(&again) && text(&drawn) != text(&other));
        let calibration = find("calibration").unwrap();
        for (op, shape) in &drawn {
            op.supports(op.choose(shape, &Chip::H200), shape, &Chip::H200).unwrap();
            let here = Place::of(op.name(), shape);
            let same = |(o, s): &&Case| o.name() == op.name() && Place::of(op.name(), s).same_work(&here);
            assert!(calibration.iter().all(|c| !same(&c)) && drawn.iter().filter(same).count() == 1, "{shape}");
        }
        for op in kernels::OPS {
            assert!(drawn.iter().any(|(o, _)| o.name() == op.name()), "{} is never drawn", op.name());
        }
        assert!(find("drawn:x").is_err() && find("drawn:1x0").is_err());
    }

    #[test]
    fn a_bad_line_is_named() {
        let says = |text: &str| parse("list", text).err().unwrap().what;
        assert_eq!(parse("list", "# none\n\nargmax m=1,v=8 # one\n").unwrap().len(), 1);
        assert!(says("argmax m=1,v=8\nargmux m=1,v=8").contains("list line 2"));
        assert!(says("argmax").contains("is not OP SHAPE"));
        assert!(says("argmax m=1,v=8\nargmax m=1,v=8").contains("twice"));
        assert!(says("# nothing").contains("no shape"));
        assert!(find("no_such_list").err().unwrap().next.unwrap().contains("decode"));
    }
}
