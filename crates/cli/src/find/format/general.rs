//! Numbers as `%g` of `printf(3)` writes them.

/// Bytes allocated over bytes of size, as `%g` of `printf(3)` writes it.
pub(super) fn sparseness(blocks: u64, size: u64) -> String {
    match (blocks, size) {
        (0, 0) => "1".into(),
        (_, 0) => "inf".into(),
        _ => general(512.0 * blocks as f64 / size as f64),
    }
}

/// `%g`: six significant digits, without trailing zeros, with an exponent outside 1e-4 to 1e6.
fn general(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trim = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if (-4..6).contains(&exponent) {
        trim(&format!("{value:.*}", usize::try_from(5 - exponent).unwrap_or_default()))
    } else {
        format!("{}e{}{:02}", trim(digits), if exponent < 0 { '-' } else { '+' }, exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparseness_reads_like_printf_g() {
        let all = [(0, 0), (8, 0), (8, 4096), (8, 100), (2, 3000), (0, 1 << 40), (8, 1 << 40), (1 << 40, 7)];
        let all: Vec<_> = all.into_iter().map(|(blocks, size)| sparseness(blocks, size)).collect();
        assert_eq!(all.join(" "), "1 inf 1 40.96 0.341333 0 3.72529e-09 8.04214e+13");
    }
}
