//! `-printf`: the format, compiled and rendered.
//!
//! Source: the GNU findutils manual, "Print File Information": "Escapes", "Format Directives", "Combined Time Formats".

use obento::{Error, FileKind};

use crate::format::mode::mode_string;

use super::evaluate::Entry;
use super::expression::Stamp;
use super::stamp::Zone;

/// A compiled format.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Format(Vec<Piece>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Literal(Vec<u8>),
    Field(Spec, Field),
}

/// Flags, width and precision of `printf(3)`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Spec {
    left: bool,
    zero: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Path,
    Relative,
    Start,
    Name,
    Directory,
    Depth,
    Size,
    Blocks512,
    BlocksK,
    Inode,
    Links,
    ModeOctal,
    ModeText,
    User,
    UserId,
    Group,
    GroupId,
    Target,
    Type,
    TargetType,
    Device,
    FsType,
    Sparseness,
    Context,
    CTime(Stamp),
    Time(Stamp, char),
}

/// The widest field that a format may ask for, in bytes.
const MAX_WIDTH: usize = 1 << 20;

impl Format {
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

    /// Writes `entry` in this format to `out`. `show` makes names fit for where they go.
    pub fn render(
        &self,
        entry: &Entry<'_>,
        zone: &Zone,
        show: &dyn Fn(&[u8]) -> Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        for piece in &self.0 {
            match piece {
                Piece::Literal(bytes) => out.extend_from_slice(bytes),
                Piece::Field(spec, field) => spec.pad(value(*field, spec, entry, zone, show)?, out),
            }
        }
        Ok(())
    }
}

enum Escape {
    Done,
    /// `\c`: the output ends here.
    Stop,
}

fn escape(rest: &mut &[u8], literal: &mut Vec<u8>, warnings: &mut Vec<String>) -> Escape {
    let Some((&byte, after)) = rest.split_first() else {
        warnings.push(r"escape `\' followed by nothing at all".into());
        literal.push(b'\\');
        return Escape::Done;
    };
    *rest = after;
    let byte = match byte {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'\\' => b'\\',
        b'c' => return Escape::Stop,
        b'0'..=b'7' => {
            let mut value = u32::from(byte - b'0');
            for _ in 0..2 {
                match rest.split_first() {
                    Some((&digit @ b'0'..=b'7', after)) => {
                        value = value * 8 + u32::from(digit - b'0');
                        *rest = after;
                    }
                    _ => break,
                }
            }
            (value & 0xff) as u8
        }
        other => {
            warnings.push(format!(r"unrecognized escape `\{}'", char::from(other)));
            literal.push(b'\\');
            other
        }
    };
    literal.push(byte);
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
        return Err("% at end of format string".into());
    };
    *rest = after;
    let stamp = match byte {
        b'%' => {
            literal.push(b'%');
            return Ok(None);
        }
        b'A' => Some(Stamp::Access),
        b'B' => Some(Stamp::Birth),
        b'C' => Some(Stamp::Change),
        b'T' => Some(Stamp::Modify),
        _ => None,
    };
    if let Some(stamp) = stamp {
        if let Some((&kind, after)) = rest.split_first() {
            *rest = after;
            return Ok(Some((spec, Field::Time(stamp, kind.into()))));
        }
        warnings.push(format!(
            "format directive `%{}' should be followed by another character",
            char::from(byte)
        ));
    } else if let Some(field) = field(byte) {
        return Ok(Some((spec, field)));
    } else {
        warnings.push(format!("unrecognized format directive `%{}'", char::from(byte)));
    }
    literal.push(b'%');
    literal.extend_from_slice(&whole[..whole.len() - rest.len()]);
    Ok(None)
}

fn field(byte: u8) -> Option<Field> {
    Some(match byte {
        b'a' => Field::CTime(Stamp::Access),
        b'c' => Field::CTime(Stamp::Change),
        b't' => Field::CTime(Stamp::Modify),
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

    /// Cuts text to the precision, and pads to the width.
    fn pad(&self, mut value: Value, out: &mut Vec<u8>) {
        if let (false, Some(precision)) = (value.numeric, self.precision) {
            value.text.truncate(precision);
        }
        let padding = self.width.saturating_sub(value.text.len());
        if self.left {
            out.extend_from_slice(&value.text);
            out.resize(out.len() + padding, b' ');
        } else {
            let zero = self.zero && value.numeric && self.precision.is_none();
            // Zeros stand between the sign and the digits.
            let sign = usize::from(zero && matches!(value.text.first(), Some(b'+' | b' ')));
            out.extend_from_slice(&value.text[..sign]);
            out.resize(out.len() + padding, if zero { b'0' } else { b' ' });
            out.extend_from_slice(&value.text[sign..]);
        }
    }

    /// A number in decimal or octal with this precision and these flags. find prints only depth and mode so; its
    /// other numbers are text to it.
    fn number(&self, digits: String, prefix: &str) -> Value {
        let precision = self.precision.unwrap_or(1);
        let mut text = format!("{digits:0>precision$}");
        if self.alternate && prefix == "0" && !text.starts_with('0') {
            text.insert(0, '0');
        } else if prefix != "0" {
            text.insert_str(0, prefix);
        }
        Value { text: text.into_bytes(), numeric: true }
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

struct Value {
    text: Vec<u8>,
    numeric: bool,
}

impl<T: Into<Vec<u8>>> From<T> for Value {
    fn from(text: T) -> Self {
        Self { text: text.into(), numeric: false }
    }
}

fn value(
    field: Field,
    spec: &Spec,
    entry: &Entry<'_>,
    zone: &Zone,
    show: &dyn Fn(&[u8]) -> Vec<u8>,
) -> Result<Value, Error> {
    let file = entry.file;
    Ok(match field {
        Field::Path => show(&entry.address()).into(),
        Field::Relative => show(entry.relative()).into(),
        Field::Start => show(entry.start).into(),
        Field::Name => show(entry.name()).into(),
        Field::Directory => show(&entry.directory()).into(),
        Field::Depth => {
            let sign = if spec.plus {
                "+"
            } else if spec.space {
                " "
            } else {
                ""
            };
            spec.number(entry.depth.to_string(), sign)
        }
        Field::Size => file.attr()?.size.to_string().into(),
        Field::Blocks512 => file.attr()?.blocks.to_string().into(),
        Field::BlocksK => file.attr()?.blocks.div_ceil(2).to_string().into(),
        Field::Inode => file.attr()?.ino.to_string().into(),
        Field::Links => file.attr()?.nlink.to_string().into(),
        Field::ModeOctal => spec.number(format!("{:o}", file.attr()?.mode.bits()), "0"),
        Field::ModeText => {
            let attr = file.attr()?;
            mode_string(attr.kind, attr.mode).into()
        }
        Field::User => {
            let uid = file.attr()?.uid;
            file.user_name(uid).map_or_else(|| uid.to_string().into(), |name| show(name).into())
        }
        Field::UserId => file.attr()?.uid.to_string().into(),
        Field::Group => {
            let gid = file.attr()?.gid;
            file.group_name(gid).map_or_else(|| gid.to_string().into(), |name| show(name).into())
        }
        Field::GroupId => file.attr()?.gid.to_string().into(),
        Field::Target => show(&file.link_target()?.unwrap_or_default()).into(),
        Field::Type => kind_letter(file.kind()?).into(),
        Field::TargetType => match file.target_kind() {
            Ok(Some(kind)) => kind_letter(kind).into(),
            Ok(None) => "N".into(),
            Err(error) if error == Error::Loop => "L".into(),
            Err(_) => "?".into(),
        },
        // The device a mount would have: there is no mount.
        Field::Device => "0".into(),
        Field::FsType => file.fs_type().into(),
        Field::Sparseness => {
            let attr = file.attr()?;
            sparseness(attr.blocks, attr.size).into()
        }
        Field::Context => file.context()?.unwrap_or_default().into(),
        Field::CTime(stamp) => entry.time(stamp)?.map_or_else(String::new, |time| zone.ctime(time)).into(),
        Field::Time(stamp, kind) => {
            entry.time(stamp)?.map_or_else(String::new, |time| zone.directive(kind, time)).into()
        }
    })
}

/// The letter of `-type` and `%y`.
fn kind_letter(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "f",
        FileKind::Directory => "d",
        FileKind::Symlink => "l",
        FileKind::CharDevice => "c",
        FileKind::BlockDevice => "b",
        FileKind::Fifo => "p",
        FileKind::Socket => "s",
    }
}

/// Bytes allocated over bytes of size, as `%g` of `printf(3)` writes it.
fn sparseness(blocks: u64, size: u64) -> String {
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

    #[test]
    fn unknown_escapes_and_directives_stay_and_warn() {
        let mut warnings = Vec::new();
        let format = Format::parse(br"\101\q%-5q%T", &mut warnings).unwrap();
        assert_eq!(format.0, [Piece::Literal(br"A\q%-5q%T".to_vec())]);
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert_eq!(Format::parse(b"a%", &mut warnings), Err("% at end of format string".into()));
        assert!(Format::parse(b"%99999999999s", &mut warnings).is_err());
    }

    #[test]
    fn nothing_follows_backslash_c() {
        assert_eq!(Format::parse(br"a\cb%", &mut Vec::new()).unwrap().0, [Piece::Literal(b"a".to_vec())]);
    }
}
