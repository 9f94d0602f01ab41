//! The empty note. Every hint in it must be replaced before a note passes its check.

use crate::error::{Error, Result};

/// What stands in each section of a new note.
pub const HINTS: [&str; 6] = [
    "> If I change …, then … falls from … to …, so I expect …",
    "- Show every number and where it comes from, bytes and seconds.\n- **Predicted: … ms**",
    "- Median, spread, number of runs, clocks; the script and its log.\n- **Measured: … ms**",
    "Where did the difference go? Each cause with its size and its evidence.",
    "> One sentence worth remembering.",
    "- What should be asked next?",
];
const HEADINGS: [&str; 6] = [
    "Hypothesis (one sentence)",
    "Arithmetic — predicted number",
    "Measurement — actual number",
    "Gap explanation",
    "Lesson (one sentence, memorable)",
    "Follow-up questions",
];
/// What stands for a field that is still to be filled in.
pub const BLANK: &str = "…";

/// Text of a new note. `date` is `YYYY-MM-DD`.
pub fn note(title: &str, date: &str) -> String {
    let mut text = format!(
        "# {title}\n\n**Date:** {date}\n**Hardware:** {BLANK}\n**Related sprint:** {BLANK}\n**Related file/PR:** {BLANK}\n"
    );
    for (i, (heading, hint)) in HEADINGS.iter().zip(HINTS).enumerate() {
        text += &format!("\n## {}. {heading}\n\n{hint}\n", i + 1);
    }
    text
}

/// Name of a note's file.
///
/// # Errors
/// A slug with anything but lower-case letters, digits and `_`.
pub fn file_name(slug: &str, date: &str) -> Result<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if slug.is_empty() || !slug.chars().all(plain) {
        return Err(Error::usage(format!("`{slug}` is not made of lower-case letters, digits and _")));
    }
    Ok(format!("{date}_{slug}.md"))
}

/// A day in UTC as `YYYY-MM-DD`, from seconds since 1970 (Hinnant's civil_from_days).
pub fn date(seconds: u64) -> String {
    let z = seconds / 86_400 + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    format!("{:04}-{month:02}-{day:02}", yoe + era * 400 + u64::from(month <= 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_names() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_796_083_199), "2026-11-30");
        assert_eq!(file_name("gemv_m1", "2026-11-30").unwrap(), "2026-11-30_gemv_m1.md");
        assert!(file_name("../x", "2026-11-30").is_err() && file_name("", "2026-11-30").is_err());
    }
}
