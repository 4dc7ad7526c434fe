//! `-printf`: what a format is and how it is rendered; `compile` reads it, `general` has numbers as `%g` writes them.
//!
//! Source: the GNU findutils manual, "Print File Information": "Escapes", "Format Directives", "Combined Time Formats".

mod compile;
mod general;

use obento::Error;
use obento::base::FileKind;

use crate::format::mode::mode_string;

use super::evaluate::VisitedEntry;
use super::expression::TimeField;
use super::stamp::Zone;
use general::sparseness;

/// A compiled format.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PrintfFormat(Vec<Piece>);

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
    CTime(TimeField),
    Time(TimeField, char),
}

impl PrintfFormat {
    /// Writes `entry` in this format to `out`. `show` makes names fit for where they go.
    pub fn render(
        &self,
        entry: &VisitedEntry<'_>,
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

impl Spec {
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
    entry: &VisitedEntry<'_>,
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
