//! The arithmetic of a note, evaluated again: `2 × 4.29 GB / 700 GB/s = 12.3 ms` must be true.
//!
//! Only what reads as arithmetic is judged. A side with words in it (`45 % of that`) is left alone; a count with a noun
//! (`163 nodes × 0.3 µs`) may confirm a result but not contradict it. Numbers without units may stand for numbers with
//! them (`12.87 / 700 = 18.4 ms`): then the digits must agree, up to a power of 1000.

use super::amend::Amendment;
use std::iter::Peekable;

/// Relative difference that rounded inputs explain.
const ROUNDING: f64 = 0.01;
/// Exponents of bytes, seconds and operations.
type Dimension = [i32; 3];
const B: Dimension = [1, 0, 0];
const S: Dimension = [0, 1, 0];
const F: Dimension = [0, 0, 1];
const HZ: Dimension = [0, -1, 0];
const B_S: Dimension = [1, -1, 0];
const F_S: Dimension = [0, -1, 1];
const NONE: Dimension = [0, 0, 0];

const UNITS: &[(&str, f64, Dimension)] = &[
    ("ns", 1e-9, S),
    ("µs", 1e-6, S),
    ("us", 1e-6, S),
    ("ms", 1e-3, S),
    ("s", 1.0, S),
    ("B", 1.0, B),
    ("byte", 1.0, B),
    ("bytes", 1.0, B),
    ("kB", 1e3, B),
    ("KB", 1e3, B),
    ("MB", 1e6, B),
    ("GB", 1e9, B),
    ("TB", 1e12, B),
    ("KiB", 1024.0, B),
    ("MiB", 1_048_576.0, B),
    ("GiB", 1_073_741_824.0, B),
    ("MB/s", 1e6, B_S),
    ("GB/s", 1e9, B_S),
    ("TB/s", 1e12, B_S),
    ("MFLOP", 1e6, F),
    ("GFLOP", 1e9, F),
    ("TFLOP", 1e12, F),
    ("FLOP", 1.0, F),
    ("GFLOP/s", 1e9, F_S),
    ("TFLOP/s", 1e12, F_S),
    ("Hz", 1.0, HZ),
    ("MHz", 1e6, HZ),
    ("GHz", 1e9, HZ),
    ("k", 1e3, NONE),
    ("M", 1e6, NONE),
    ("G", 1e9, NONE),
    ("T", 1e12, NONE),
];

/// An equation that does not hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub text: String,
    pub why: String,
}

/// What was evaluated: how many equations hold, and which do not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub held: usize,
    pub faults: Vec<Fault>,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// Value and half a unit of its last digit.
    Number(f64, f64),
    Op(char),
    Word(String),
    /// A boundary at which an expression may begin: `:` or `,`.
    Mark,
}

#[derive(Clone, Copy, Debug)]
struct Value {
    v: f64,
    /// Half a unit of the last digit, of a single number.
    half: f64,
    dim: Dimension,
    /// Whether a number without a unit is part of it.
    plain: bool,
    noun: bool,
    ops: u32,
    decimal: bool,
    binary: bool,
    mixed: bool,
}

/// Evaluates every equation of a section.
pub fn check(section: &str) -> Outcome {
    let mut outcome = Outcome::default();
    // A line that is indented goes on with the one before.
    let section = section.replace("\n  ", " ");
    for line in section.lines().filter(|l| !l.trim().starts_with("- Sealed")) {
        let added = Amendment::parse(line).map(|a| a.text);
        let line = added.as_deref().unwrap_or(line).trim().trim_start_matches("- ").replace("**", "");
        for segment in line.split(['|', ';']) {
            let sides: Vec<&str> = segment.split(['=', '≈']).collect();
            for pair in sides.windows(2) {
                judge(pair[0], pair[1], &mut outcome);
            }
        }
    }
    outcome
}

fn judge(left: &str, right: &str, outcome: &mut Outcome) {
    let (Some(l), Some(tokens)) = (left_value(left), tokens(right)) else { return };
    let right_values: Vec<Value> = [first(&tokens), longest_prefix(&tokens)].into_iter().flatten().collect();
    // A single number on the left is a restatement, not arithmetic.
    if right_values.is_empty() || l.ops == 0 {
        return;
    }
    let text = || format!("{} = {}", left.trim(), right.trim());
    if l.mixed {
        outcome.faults.push(Fault { text: text(), why: "adds GB and GiB".into() });
        return;
    }
    if right_values.iter().any(|r| agree(&l, r)) {
        outcome.held += 1;
        return;
    }
    let r = right_values[0];
    if l.noun || r.noun {
        return;
    }
    let why = if l.dim != r.dim && !l.plain && !r.plain {
        "the sides have different units".to_string()
    } else {
        let shown = if r.dim == l.dim || r.v == 0.0 {
            l.v
        } else {
            l.v / 1e3f64.powi(((l.v / r.v).abs().log10() / 3.0).round() as i32)
        };
        let scale = unit_scale(&tokens);
        format!("the left side is {:.4}", shown / scale)
    };
    outcome.faults.push(Fault { text: text(), why });
}

/// Size of the unit that the right side's first number has.
fn unit_scale(tokens: &[Token]) -> f64 {
    match tokens {
        [Token::Number(..), Token::Word(w), ..] => unit(w).map_or(1.0, |u| u.0),
        _ => 1.0,
    }
}

fn agree(l: &Value, r: &Value) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= (ROUNDING * b.abs()).max(1.2 * r.half);
    if near(l.v, r.v) {
        return l.dim == r.dim || l.plain || r.plain || l.noun || r.noun;
    }
    if l.dim == r.dim && !(l.dim == NONE && l.plain) || !(l.plain || r.plain) || l.v * r.v <= 0.0 {
        return false;
    }
    let steps = ((l.v / r.v).log10() / 3.0).round();
    steps != 0.0 && steps.abs() <= 5.0 && r.dim != NONE && near(l.v / 1e3f64.powf(steps), r.v)
}

fn unit(word: &str) -> Option<(f64, Dimension)> {
    let word = word.replace('μ', "µ");
    UNITS.iter().find(|(n, ..)| *n == word).map(|(_, f, d)| (*f, *d))
}

/// The tokens of a text; `None` where a character is no part of any.
fn tokens(text: &str) -> Option<Vec<Token>> {
    let c: Vec<char> = text.chars().collect();
    let mut out = Vec::new();
    let mut i = 0;
    while i < c.len() {
        match c[i] {
            ch if ch.is_whitespace() => i += 1,
            ch if ch.is_ascii_digit() || ch == '.' && c.get(i + 1).is_some_and(char::is_ascii_digit) => {
                let (number, end) = number(&c, i)?;
                out.push(number);
                i = end;
            }
            '+' | '/' | '*' | '×' | '·' | '^' | '(' | ')' | '%' => {
                out.push(Token::Op(if matches!(c[i], '×' | '·') { '*' } else { c[i] }));
                i += 1;
            }
            '-' | '−' => {
                out.push(Token::Op('-'));
                i += 1;
            }
            '²' => (out.push(Token::Op('²')), i += 1).1,
            '³' => (out.push(Token::Op('³')), i += 1).1,
            ':' | ',' => (out.push(Token::Mark), i += 1).1,
            ch if ch.is_alphabetic() || "`_'>~#".contains(ch) => {
                let mut end = i + 1;
                while end < c.len() && (c[end].is_alphanumeric() || "_`'.".contains(c[end])) {
                    end += 1;
                }
                if c[end..].starts_with(&['/', 's']) && !c.get(end + 2).is_some_and(|c| c.is_alphanumeric()) {
                    end += 2;
                }
                let word: String = c[i..end].iter().collect();
                let next = c[end..].iter().find(|c| !c.is_whitespace());
                let times = word == "x" && next.is_some_and(|n| n.is_ascii_digit() || *n == '(');
                out.push(if times { Token::Op('*') } else { Token::Word(word.trim_end_matches('.').into()) });
                i = end;
            }
            _ => {
                out.push(Token::Word(c[i].to_string()));
                i += 1;
            }
        }
    }
    Some(out)
}

/// A number with thousands separators and an exponent, and where it ends.
fn number(c: &[char], start: usize) -> Option<(Token, usize)> {
    let (mut i, mut text) = (start, String::new());
    while i < c.len() {
        let digits = |n: usize| c.get(i + 1..i + 1 + n).is_some_and(|d| d.iter().all(char::is_ascii_digit));
        match c[i] {
            d if d.is_ascii_digit() => text.push(d),
            ',' if digits(3) && !c.get(i + 4).is_some_and(char::is_ascii_digit) && !text.contains('.') => {}
            '.' if digits(1) && !text.contains('.') => text.push('.'),
            'e' if digits(1) && text.parse::<f64>().is_ok() && !text.contains('e') => text.push('e'),
            _ => break,
        }
        i += 1;
    }
    let value: f64 = text.parse().ok()?;
    let decimals = text.split_once('.').map_or(0, |(_, d)| d.chars().take_while(char::is_ascii_digit).count());
    let scale = text.split_once('e').and_then(|(_, e)| e.parse::<i32>().ok()).unwrap_or(0);
    Some((Token::Number(value, 0.5 * 10f64.powi(scale - decimals as i32)), i))
}

/// The longest part at the end of the left side that is an expression and begins at its start or after a mark.
fn left_value(text: &str) -> Option<Value> {
    // An equation inside a parenthesis (`(B=16) 16 * 32`) leaves its end behind.
    let text = match (text.find(')'), text.find('(')) {
        (Some(close), open) if open.is_none_or(|o| close < o) => &text[close + 1..],
        _ => text,
    };
    let tokens = tokens(&without_remarks(text))?;
    let starts =
        std::iter::once(0).chain(tokens.iter().enumerate().filter(|(_, t)| **t == Token::Mark).map(|(i, _)| i + 1));
    starts.into_iter().find_map(|i| whole(&tokens[i..]))
}

/// Parentheses that hold only words are remarks.
fn without_remarks(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('(') {
        let Some(close) = rest[open..].find(')') else { break };
        let inside = &rest[open + 1..open + close];
        out += &rest[..open];
        if inside.contains(|c: char| c.is_ascii_digit()) || inside.contains('(') {
            out += &rest[open..=open + close];
        }
        rest = &rest[open + close + 1..];
    }
    out + rest
}

fn whole(tokens: &[Token]) -> Option<Value> {
    let mut it = tokens.iter().cloned().peekable();
    let value = sum(&mut it)?;
    it.next().is_none().then_some(value)
}

/// The first number of a side, with its unit.
fn first(tokens: &[Token]) -> Option<Value> {
    let mut it = tokens.iter().cloned().peekable();
    atom(&mut it)
}

/// The longest beginning of a side that is an expression.
fn longest_prefix(tokens: &[Token]) -> Option<Value> {
    (1..=tokens.len()).rev().find_map(|n| whole(&tokens[..n]))
}

type Tokens<'a> = Peekable<std::iter::Cloned<std::slice::Iter<'a, Token>>>;

fn sum(it: &mut Tokens<'_>) -> Option<Value> {
    let mut a = product(it)?;
    while let Some(Token::Op(op @ ('+' | '-'))) = it.peek().cloned() {
        it.next();
        let b = product(it)?;
        // `7.35 µs + 2` adds 2 µs.
        let b = if a.dim != b.dim && b.dim == NONE && b.ops == 0 { Value { v: b.v * scale(a), ..b } } else { b };
        if a.dim != b.dim && !(a.plain || b.plain) {
            return None;
        }
        a = Value {
            v: if op == '+' { a.v + b.v } else { a.v - b.v },
            mixed: a.mixed || b.mixed || a.decimal && b.binary || a.binary && b.decimal,
            ..joined(a, b)
        };
    }
    Some(a)
}

/// Size of the unit of a single number, told from its last digit.
fn scale(v: Value) -> f64 {
    [1e-9, 1e-6, 1e-3].into_iter().find(|s| v.dim == S && v.v.abs() < 1e3 * s).unwrap_or(1.0)
}

fn joined(a: Value, b: Value) -> Value {
    Value {
        v: a.v,
        half: 0.0,
        dim: if a.dim == NONE { b.dim } else { a.dim },
        plain: a.plain || b.plain,
        noun: a.noun || b.noun,
        ops: a.ops + b.ops + 1,
        decimal: a.decimal || b.decimal,
        binary: a.binary || b.binary,
        mixed: a.mixed || b.mixed,
    }
}

fn product(it: &mut Tokens<'_>) -> Option<Value> {
    let mut a = power(it)?;
    while let Some(Token::Op(op @ ('*' | '/'))) = it.peek().cloned() {
        it.next();
        let b = power(it)?;
        let sign = if op == '*' { 1 } else { -1 };
        let dim = [0, 1, 2].map(|i| a.dim[i] + sign * b.dim[i]);
        let v = if op == '*' { a.v * b.v } else { a.v / b.v };
        // GB over GiB is a ratio, not a mixture.
        a = Value { v, dim, ..joined(a, b) };
    }
    Some(a)
}

fn power(it: &mut Tokens<'_>) -> Option<Value> {
    let a = atom(it)?;
    let exponent = match it.peek() {
        Some(Token::Op('²')) => 2.0,
        Some(Token::Op('³')) => 3.0,
        Some(Token::Op('^')) => {
            it.next();
            match it.peek() {
                Some(Token::Number(n, _)) => *n,
                _ => return None,
            }
        }
        _ => return Some(a),
    };
    it.next();
    (a.dim == NONE).then(|| Value { v: a.v.powf(exponent), ..joined(a, a) })
}

fn atom(it: &mut Tokens<'_>) -> Option<Value> {
    match it.next()? {
        Token::Op('(') => {
            let v = sum(it)?;
            if it.next()? != Token::Op(')') {
                return None;
            }
            Some(with_words(v, it))
        }
        Token::Op('-') => atom(it).map(|a| Value { v: -a.v, ..a }),
        Token::Number(v, half) => {
            let plain = Value {
                v,
                half,
                dim: NONE,
                plain: true,
                noun: false,
                ops: 0,
                decimal: false,
                binary: false,
                mixed: false,
            };
            if it.next_if_eq(&Token::Op('%')).is_some() {
                return Some(Value { v: v / 100.0, half: half / 100.0, plain: false, ..plain });
            }
            Some(with_words(plain, it))
        }
        _ => None,
    }
}

/// Takes the unit and the noun after a number.
fn with_words(mut v: Value, it: &mut Tokens<'_>) -> Value {
    while let Some(Token::Word(w)) = it.peek() {
        match unit(w) {
            Some((factor, dim)) if v.dim == NONE => {
                v = Value {
                    v: v.v * factor,
                    half: v.half * factor,
                    dim,
                    plain: v.plain && dim == NONE,
                    decimal: ["kB", "KB", "MB", "GB", "TB"].contains(&w.as_str()),
                    binary: w.ends_with("iB"),
                    ..v
                };
            }
            None if w.chars().all(char::is_alphabetic) && w.len() > 1 && !v.noun => v.noun = true,
            _ => break,
        }
        it.next();
    }
    v
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> Option<String> {
        let o = check(text);
        assert!(o.held + o.faults.len() <= 1, "{text}: {o:?}");
        o.faults.first().map(|f| f.why.clone())
    }

    #[test]
    fn true_equations_hold() {
        for text in [
            "- Input: (B=16) 16 * 32 * 2048 * 2048 * 2 bytes = 4.29 GB",
            "- Fused: 12.87 / 700 = 18.4 ms",
            "- 33.6 MB / 4,580 GB/s = 7.33 µs",
            "- 2 × 8192³ = 1.0995 TFLOP",
            "- fp32: 132 × 128 × 2 × 1.98 GHz = 66.9 TFLOP/s",
            "- (4 + 16/128) / 8 = 0.5156",
            "- 163 nodes × 0.3 µs = 49 µs on a step",
            "- Bytes: 2 × 2^28 × 2 = 1.074 GB (both ways)",
            "- 1.074 GB / 4,283 GB/s (copy) = 250.7 µs",
            "- Kernels: 32 × 5 + 3 = 163, each losing 2.5 µs: 0.41 ms",
            "- 7.35 µs + 2 = 9.3 µs",
            "- 8 GiB / 2 = 4.29 GB",
            "- 0.9 × 23.58 GiB − 17.06 GiB − 0.35 GiB = 3.81 GiB",
        ] {
            let o = check(text);
            assert!(o.faults.is_empty() && o.held == 1, "{text}: {o:?}");
        }
    }

    #[test]
    fn false_ones_do_not() {
        assert!(fault("- 2 × 4.29 GB = 12.87 GB").unwrap().contains("8.58"));
        assert!(fault("- 8.58 GB / 700 GB/s = 14.3 ms").unwrap().contains("12.25"));
        assert_eq!(fault("- 8 GB × 2 GB/s = 4 ms").unwrap(), "the sides have different units");
        assert_eq!(fault("- 24 GiB − 16.06 GB = 7.94 GB").unwrap(), "adds GB and GiB");
        assert!(fault("- 16 / 2 = 9").unwrap().contains('8'));
        assert!(fault("- 12.87 / 700 = 19.4 ms").unwrap().contains("18.3"));
    }

    #[test]
    fn what_is_not_arithmetic_is_left_alone() {
        for text in [
            "- mma.sync tier: 45 % of that = 347 TFLOP/s",
            "- a burst: 771 TFLOP/s = 1.426 ms",
            "- 218.1 M parameters = 436.2 MB; times 32 = 13.96 GB",
            "- plus 1.7 = 9.0 µs (81 %)",
            "- Read 95 %: 4,580 GB/s",
            "- k=4096, n=8",
        ] {
            assert_eq!(check(text), Outcome::default(), "{text}");
        }
    }
}
