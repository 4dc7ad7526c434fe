//! Fields of a header: numbers and names.

use super::Block;

/// A number: octal digits between spaces and NULs, or with the high bit of the first byte set big-endian in two's
/// complement (GNU's base-256). An empty field is 0. None if it is no number.
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

/// The bytes before the first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Whether the checksum is right: the sum of all bytes with spaces in its place, which some counted as signed.
pub(super) fn is_sound(block: &Block) -> bool {
    let Some(stored) = number(&block[148..156]) else { return false };
    let bytes =
        || block.iter().enumerate().map(|(at, &byte)| if (148..156).contains(&at) { b' ' } else { byte });
    let unsigned: i128 = bytes().map(i128::from).sum();
    let signed: i128 = bytes().map(|byte| i128::from(byte.cast_signed())).sum();
    stored == unsigned || stored == signed
}
