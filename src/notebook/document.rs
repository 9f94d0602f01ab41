//! Edits of a note's text that leave every other byte alone: plain Markdown is the only source of truth, so a note written
//! by hand and one written by the commands are the same thing.

use super::{WAITING, template};

/// Byte range of the body of the section whose heading (without its number) begins with `name`.
pub fn body(text: &str, name: &str) -> Option<std::ops::Range<usize>> {
    let mut start = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if let Some(heading) = line.strip_prefix("## ") {
            if let Some(start) = start {
                return Some(start..at);
            }
            if super::heading(heading).starts_with(name) {
                start = Some(at + line.len());
            }
        }
        at += line.len();
    }
    start.map(|s| s..at)
}

/// Whether a line is one of the template's hints.
pub fn is_hint(line: &str) -> bool {
    template::HINTS.iter().flat_map(|h| h.lines()).any(|h| h == line.trim())
}

/// What a section says, without hints and without the sentence that it waits.
pub fn written(section: &str) -> String {
    let kept: Vec<&str> = section.lines().filter(|l| !is_hint(l) && l.trim() != WAITING).collect();
    kept.join("\n").trim().to_string()
}

/// The text with `lines` at the end of a section; `None` where there is no such section. Hints go.
pub fn append(text: &str, name: &str, lines: &str) -> Option<String> {
    let range = body(text, name)?;
    let old = written(&text[range.clone()]);
    let list = |l: Option<&str>| l.is_some_and(|l| l.starts_with("- ") || l.starts_with("  "));
    let gap = match (old.is_empty(), list(old.lines().last()) && list(lines.lines().next())) {
        (true, _) => "",
        (_, true) => "\n",
        _ => "\n\n",
    };
    Some(replaced(text, range, &format!("{old}{gap}{}", lines.trim_end())))
}

/// The text with a section's body replaced.
pub fn replace(text: &str, name: &str, new: &str) -> Option<String> {
    Some(replaced(text, body(text, name)?, new))
}

fn replaced(text: &str, range: std::ops::Range<usize>, new: &str) -> String {
    let last = range.end == text.len();
    format!("{}\n{}\n{}{}", &text[..range.start], new.trim(), if last { "" } else { "\n" }, &text[range.end..])
}

#[cfg(test)]
mod tests {
    use super::super::EXAMPLE;
    use super::*;

    #[test]
    fn an_edit_touches_its_section_only() {
        let more = append(EXAMPLE, "Measurement", "- again").unwrap();
        assert_eq!(more.replace("\n- again", ""), EXAMPLE);
        let new = replace(EXAMPLE, "Follow-up", "- None.").unwrap();
        assert_eq!(new.replace("- None.", "- Blocks of 128?"), EXAMPLE);
        assert_eq!(append(EXAMPLE, "Appendix", "x"), None);
    }

    #[test]
    fn hints_give_way() {
        let text = append(&template::note("T", "2026-08-08"), "Arithmetic", "- 1 + 1 = 2").unwrap();
        assert_eq!(text[body(&text, "Arithmetic").unwrap()].trim(), "- 1 + 1 = 2");
        let waits = replace(&text, "Measurement", WAITING).unwrap();
        let text = append(&waits, "Measurement", "- 2").unwrap();
        assert_eq!(text[body(&text, "Measurement").unwrap()].trim(), "- 2");
    }
}
