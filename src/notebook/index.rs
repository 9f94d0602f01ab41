//! The notebook's README: one row a note, from the notes alone.

use super::{Note, number};
use std::fmt::Write;

/// Text of `README.md`.
pub fn render(notes: &[Note]) -> String {
    let mut text = String::from(
        "# Lab notebook\n\n\
         One file an experiment: the number predicted, the number measured, the gap explained. Misses of more than 30 % are\n\
         in [surprise_log.md](surprise_log.md). `workbench note new SLUG --title TITLE` begins a note, `workbench note check`\n\
         holds the notebook to its rules, `workbench note index` writes this page.\n\n\
         | note | quantity | predicted | measured | miss |\n| --- | --- | ---: | ---: | ---: |\n",
    );
    for note in notes {
        let pairs = note.pairs();
        let mut link = format!("[{}]({})", note.title.replace('|', "\\|"), note.file);
        if pairs.is_empty() {
            let _ = writeln!(text, "| {link} | | | | |");
        }
        for p in pairs {
            let measured = p.measured.map_or(String::new(), |m| format!("{} {}", number(m), p.unit));
            let miss = p.miss().map_or(String::new(), |m| format!("{:+.1} %", 100.0 * m));
            let _ =
                writeln!(text, "| {link} | {} | {} {} | {measured} | {miss} |", p.name, number(p.predicted), p.unit);
            link.clear();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::EXAMPLE;
    use super::*;

    #[test]
    fn a_row_for_each_quantity() {
        let text = render(&[Note::parse("a.md", EXAMPLE)]);
        assert!(text.contains("| [Fused softmax](a.md) | speedup | 1.5 × | 1.3 × | -13.3 % |\n"), "{text}");
        assert!(text.contains("|  |  | 12.3 ms | 14.7 ms | +19.5 % |\n"), "{text}");
    }
}
