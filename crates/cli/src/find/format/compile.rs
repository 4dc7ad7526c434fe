//! From the text of a format to its pieces: escapes, directives with their flags, width and precision.

use super::{Field, Piece, PrintfFormat, Spec, TimeField};
use crate::parse::escape::{control, digits};

/// The widest field that a format may ask for, in bytes.
const MAX_WIDTH: usize = 1 << 20;

impl PrintfFormat {
    /// Compiles `text`. What GNU find warns of is pushed to `warnings`; the error is for a lone `%` at the end.
    pub fn parse(text: &[u8], warnings: &mut Vec<String>) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match byte {
                b'\\' => match escape(&mut rest, &mut literal, warnings) {
                    Escape::Stop => break,
                    Escape::Done => {}
                },
                b'%' => {
                    if let Some((spec, field)) = directive(&mut rest, &mut literal, warnings)? {
                        if !literal.is_empty() {
                            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                        }
                        pieces.push(Piece::Field(spec, field));
                    }
                }
                other => literal.push(other),
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self(pieces))
    }
}

enum Escape {
    Done,
    /// `\c`: the output ends here.
    Stop,
}

fn escape(rest: &mut &[u8], literal: &mut Vec<u8>, warnings: &mut Vec<String>) -> Escape {
    if let Some(value) = digits(rest, 3, 8) {
        literal.push(value);
        return Escape::Done;
    }
    match rest.split_off_first() {
        None => {
            warnings.push(r"a '\' at the end of the format escapes nothing".into());
            literal.push(b'\\');
        }
        Some(b'c') => return Escape::Stop,
        Some(b'\\') => literal.push(b'\\'),
        // Find does not have `\e`.
        Some(&byte) => match control(byte).filter(|_| byte != b'e') {
            Some(control) => literal.push(control),
            None => {
                warnings.push(format!(r"unknown escape '\{}' in the format", char::from(byte)));
                literal.extend_from_slice(&[b'\\', byte]);
            }
        },
    }
    Escape::Done
}

fn directive(
    rest: &mut &[u8],
    literal: &mut Vec<u8>,
    warnings: &mut Vec<String>,
) -> Result<Option<(Spec, Field)>, String> {
    let whole = *rest;
    let spec = Spec::parse(rest)?;
    let Some((&byte, after)) = rest.split_first() else {
        return Err("a % at the end of the format is not a directive".into());
    };
    *rest = after;
    let stamp = match byte {
        b'%' => {
            literal.push(b'%');
            return Ok(None);
        }
        b'A' => Some(TimeField::Access),
        b'B' => Some(TimeField::Birth),
        b'C' => Some(TimeField::Change),
        b'T' => Some(TimeField::Modify),
        _ => None,
    };
    if let Some(stamp) = stamp {
        if let Some((&kind, after)) = rest.split_first() {
            *rest = after;
            return Ok(Some((spec, Field::Time(stamp, kind.into()))));
        }
        warnings
            .push(format!("the directive '%{}' in the format requires another character", char::from(byte)));
    } else if let Some(field) = field(byte) {
        return Ok(Some((spec, field)));
    } else {
        warnings.push(format!("unknown directive '%{}' in the format", char::from(byte)));
    }
    literal.push(b'%');
    literal.extend_from_slice(&whole[..whole.len() - rest.len()]);
    Ok(None)
}

fn field(byte: u8) -> Option<Field> {
    Some(match byte {
        b'a' => Field::CTime(TimeField::Access),
        b'c' => Field::CTime(TimeField::Change),
        b't' => Field::CTime(TimeField::Modify),
        b'b' => Field::Blocks512,
        b'd' => Field::Depth,
        b'D' => Field::Device,
        b'f' => Field::Name,
        b'F' => Field::FsType,
        b'g' => Field::Group,
        b'G' => Field::GroupId,
        b'h' => Field::Directory,
        b'H' => Field::Start,
        b'i' => Field::Inode,
        b'k' => Field::BlocksK,
        b'l' => Field::Target,
        b'm' => Field::ModeOctal,
        b'M' => Field::ModeText,
        b'n' => Field::Links,
        b'p' => Field::Path,
        b'P' => Field::Relative,
        b's' => Field::Size,
        b'S' => Field::Sparseness,
        b'u' => Field::User,
        b'U' => Field::UserId,
        b'y' => Field::Type,
        b'Y' => Field::TargetType,
        b'Z' => Field::Context,
        _ => return None,
    })
}

impl Spec {
    fn parse(rest: &mut &[u8]) -> Result<Self, String> {
        let mut spec = Self::default();
        while let Some((&flag, after)) = rest.split_first() {
            match flag {
                b'-' => spec.left = true,
                b'0' => spec.zero = true,
                b'+' => spec.plus = true,
                b' ' => spec.space = true,
                b'#' => spec.alternate = true,
                _ => break,
            }
            *rest = after;
        }
        spec.width = number(rest)?.unwrap_or_default();
        if let Some((b'.', after)) = rest.split_first() {
            *rest = after;
            spec.precision = Some(number(rest)?.unwrap_or_default());
        }
        Ok(spec)
    }
}

fn number(rest: &mut &[u8]) -> Result<Option<usize>, String> {
    let len = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, after) = rest.split_at(len);
    *rest = after;
    if digits.is_empty() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(digits);
    let value = text.parse().ok().filter(|&width| width <= MAX_WIDTH);
    value.map(Some).ok_or_else(|| format!("the width {text} is larger than {MAX_WIDTH}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_escapes_and_directives_stay_and_warn() {
        let mut warnings = Vec::new();
        let format = PrintfFormat::parse(br"\101\q%-5q%T", &mut warnings).unwrap();
        assert_eq!(format.0, [Piece::Literal(br"A\q%-5q%T".to_vec())]);
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert_eq!(
            PrintfFormat::parse(b"a%", &mut warnings),
            Err("a % at the end of the format is not a directive".into())
        );
        assert!(PrintfFormat::parse(b"%99999999999s", &mut warnings).is_err());
    }

    #[test]
    fn nothing_follows_backslash_c() {
        assert_eq!(
            PrintfFormat::parse(br"a\cb%", &mut Vec::new()).unwrap().0,
            [Piece::Literal(b"a".to_vec())]
        );
    }
}
