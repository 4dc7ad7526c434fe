//! Parses fields of a header: numbers and names.

use super::Block;

/// Parses a number: octal digits between spaces and NULs, or big-endian two's complement if the high bit of
/// the first byte is set (GNU's base-256). An empty field is 0. Returns `None` for any other text.
pub(super) fn number(field: &[u8]) -> Option<i128> {
    let (&first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        let sign = if first & 0x40 == 0 { i128::from(first & 0x3f) } else { i128::from(first | 0x80) - 256 };
        return rest.iter().try_fold(sign, |number, &byte| {
            number
                .checked_mul(256)?
                .checked_add(byte.into())
                .filter(|number| i64::try_from(*number >> 16).is_ok())
        });
    }
    let text = field.split(|&byte| byte == 0).next().unwrap_or_default().trim_ascii();
    text.iter().try_fold(0_i128, |number, &digit| match digit {
        b'0'..=b'7' => number.checked_mul(8)?.checked_add((digit - b'0').into()),
        _ => None,
    })
}

/// Returns the bytes before the first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Returns whether the checksum is correct: the sum of all bytes with spaces in its own field. Some programs
/// summed signed bytes.
pub(super) fn is_sound(block: &Block) -> bool {
    let Some(stored) = number(&block[148..156]) else { return false };
    let bytes =
        || block.iter().enumerate().map(|(at, &byte)| if (148..156).contains(&at) { b' ' } else { byte });
    let unsigned: i128 = bytes().map(i128::from).sum();
    let signed: i128 = bytes().map(|byte| i128::from(byte.cast_signed())).sum();
    stored == unsigned || stored == signed
}
