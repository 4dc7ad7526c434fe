//! The escapes of C that shells, formats and values of attributes have in common.

/// Returns the control character of `\a`, `\b`, `\e`, `\f`, `\n`, `\r`, `\t` or `\v`.
pub fn control(letter: u8) -> Option<u8> {
    Some(match letter {
        b'a' => 0x07,
        b'b' => 0x08,
        b'e' => 0x1b,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        _ => return None,
    })
}

/// Takes at most `most` digits from the start of `rest`. Returns their number modulo 256, or `None` without a digit.
pub fn digits(rest: &mut &[u8], most: usize, radix: u32) -> Option<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(radix);
    let value = |digits: &[u8]| digits.iter().filter_map(digit).fold(0, |value, digit| value * radix + digit);
    let len = rest.iter().take(most).take_while(|byte| digit(byte).is_some()).count();
    let (digits, after) = rest.split_at(len);
    *rest = after;
    (len > 0).then(|| value(digits).to_le_bytes()[0])
}
