//! The format of numbers, times, modes and lists, which is that of GNU coreutils.

pub mod colors;
pub mod columns;
pub mod date;
pub mod directives;
pub mod flags;
pub mod mode;
pub mod size;
pub mod time;

/// Returns the number of decimal digits of `number`.
pub fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Appends `number` to `out`, right-aligned in `width` columns.
pub fn push_number(out: &mut Vec<u8>, number: u64, width: usize) {
    let mut buffer = [b' '; 20];
    let mut rest = number;
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    push_right(out, &buffer[at..], width);
}

/// Appends `text` to `out`, right-aligned in `width` columns.
pub fn push_right(out: &mut Vec<u8>, text: &[u8], width: usize) {
    out.resize(out.len() + width.saturating_sub(text.len()), b' ');
    out.extend_from_slice(text);
}

/// Appends `text`, which takes `columns` on a terminal, to `out`, left-aligned in `width` columns.
pub fn push_left(out: &mut Vec<u8>, text: &[u8], columns: usize, width: usize) {
    out.extend_from_slice(text);
    out.resize(out.len() + width.saturating_sub(columns), b' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_to_the_right() {
        for number in [0, 9, 10, 12_345, u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, number, 22);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{number:>22}"));
            assert_eq!(digits(number), number.to_string().len());
        }
    }
}
