//! One spelling for names that several demanglers spell differently, so that the same kernel in a capture of CUPTI and in one
//! of the PyTorch profiler or Nsight Systems is the same kernel.

/// A kernel's name without what depends on the demangler: types of integer arguments (`(unsigned long)2` and `2ul` are
/// both `2`), `(bool)1`, spaces, the return type of a function template inside another name, and a `const` that
/// demanglers put now into a lambda's parameters and now behind it.
pub(in crate::profile) fn canonical(name: &str) -> String {
    if !name.contains(['<', '(', ' ']) {
        return name.to_string();
    }
    let name =
        name.replace("<unnamed>", "(anonymous namespace)").replace("(bool)0", "false").replace("(bool)1", "true");
    let name = name.replace(" const)#", ")#").replace("} const&", "}&").replace("} const*", "}*");
    let bytes = name.as_bytes();
    let mut out: Vec<u8> = Vec::with_capacity(bytes.len());
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let mut i = 0;
    while i < bytes.len() {
        let rest = &name.as_bytes()[i..];
        let begins = !out.last().is_some_and(|&b| word(b));
        if let Some(cast) = integer_cast(rest) {
            i += cast;
        } else if begins
            && rest.starts_with(b"void ")
            && rest.get(5).is_some_and(|&b| word(b))
            && !rest[5..].starts_with(b"const")
        {
            i += 5;
        } else if begins && rest[0].is_ascii_digit() {
            let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            let suffix = rest[digits..].iter().take_while(|b| b"ulUL".contains(b)).count();
            let ends = rest.get(digits + suffix).is_none_or(|&b| !word(b));
            out.extend(&rest[..digits]);
            i += digits + if ends { suffix } else { 0 };
        } else if rest[0] == b' ' {
            // Between two words a space parts them; anywhere else it is a matter of taste.
            if out.last().is_some_and(|&b| word(b)) && rest.get(1).is_some_and(|&b| word(b)) {
                out.push(b' ');
            }
            i += 1;
        } else {
            out.push(rest[0]);
            i += 1;
        }
    }
    String::from_utf8(out).unwrap_or(name)
}

/// Length of `(TYPE)` before a number, where TYPE is an integer's.
fn integer_cast(text: &[u8]) -> Option<usize> {
    let inner = text.strip_prefix(b"(")?;
    let end = inner.iter().position(|&b| b == b')')?;
    let known = |w: &[u8]| matches!(w, b"unsigned" | b"signed" | b"char" | b"short" | b"int" | b"long");
    let number = match inner.get(end + 1)? {
        b'-' => inner.get(end + 2)?.is_ascii_digit(),
        b => b.is_ascii_digit(),
    };
    (end > 0 && number && inner[..end].split(|&b| b == b' ').all(known)).then_some(end + 2)
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn demanglers_agree() {
        for (a, b) in [
            ("void f<std::array<char*, (unsigned long)2> >(int)", "void f<std::array<char*,2ul>>(int)"),
            ("g<(int)4, (bool)1>(float const*)", "g<4, true>(float const*)"),
            ("g<(int)-4>()", "g<-4>()"),
            ("T<(unsigned int)2>*", "T<2u> *"),
            (
                "void k<void at::f<int>(at::T&)::{lambda(int)#1}>(long)",
                "void k<at::f<int>(at::T&)::{lambda(int)#1}>(long)",
            ),
            ("k<{lambda(c10::B const)#1}&>", "k<{lambda(c10::B)#1} const&>"),
            ("void (anonymous namespace)::k(int)", "void <unnamed>::k(int)"),
        ] {
            assert_eq!(canonical(a), canonical(b));
        }
    }

    #[test]
    fn what_differs_stays_apart() {
        for (a, b) in [
            ("k<2>(int)", "k<3>(int)"),
            ("k(unsigned int)", "k(int)"),
            ("k(unsigned int, unsigned long)", "k(unsigned int, long)"),
            ("k(float const*)", "k(float*)"),
            ("k<void*>()", "k<char*>()"),
            ("k<T<float const, int> >()", "k<T<float, int> >()"),
            ("sm80_64x8u_TNT", "sm80_64x8_TNT"),
            ("k<true>()", "k<1>()"),
            ("k(void const*)", "k(const*)"),
        ] {
            assert_ne!(canonical(a), canonical(b));
        }
        assert_eq!(canonical("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"), "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT");
    }
}
