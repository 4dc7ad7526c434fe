//! The long format: `drwxr-xr-x 2 root root 4096 Jan  2 15:04 name`.

use obento::base::{Attr, FileKind};
use obento::volume::Owners;

use super::gather::{ListedEntry, Listing};
use super::settings::{Indicator, Settings};
use super::short::{indicator, mark, paint, shown};
use crate::escape::{NameStyle, escape, width};
use crate::format::colors::Painter;
use crate::format::mode::{kind_letter, mode_string};
use crate::format::time::Clock;
use crate::format::{digits, push_left, push_number, push_right};

/// The widths of the columns.
#[derive(Default)]
struct Widths {
    inode: usize,
    blocks: usize,
    nlink: usize,
    user: usize,
    group: usize,
    size: usize,
    major: usize,
    minor: usize,
    time: usize,
    marked: bool,
    quoted: bool,
}

/// Appends the listing to `out`, one line per entry.
pub fn write(
    out: &mut Vec<u8>,
    listing: &Listing,
    settings: &Settings,
    owners: &Owners,
    clock: &mut Clock,
    painter: &mut Option<Painter>,
) {
    let mut line = Line { settings, owners, widths: Widths::default(), clock };
    line.measure(listing);
    for entry in &listing.entries {
        line.write(out, listing, entry, painter);
        out.push(settings.end);
    }
}

struct Line<'a> {
    settings: &'a Settings,
    owners: &'a Owners,
    widths: Widths,
    clock: &'a mut Clock,
}

impl Line<'_> {
    fn measure(&mut self, listing: &Listing) {
        let mut widths = Widths { nlink: 1, user: 1, group: 1, size: 1, ..Widths::default() };
        let fit = |width: &mut usize, needed: usize| *width = (*width).max(needed);
        for entry in &listing.entries {
            fit(&mut widths.inode, digits(entry.ino.0));
            widths.marked |= entry.mark != b' ';
            widths.quoted |= self.settings.align_quotes && shown(listing.name(entry), self.settings).1;
            let Some(attr) = &entry.attr else { continue };
            if self.settings.blocks {
                fit(&mut widths.blocks, self.settings.block_unit.text(attr.blocks.saturating_mul(512)).len());
            }
            fit(&mut widths.nlink, digits(u64::from(attr.nlink)));
            if self.settings.owner {
                fit(&mut widths.user, self.owner_width(self.owners.user(attr.uid), attr.uid));
            }
            if self.settings.group {
                fit(&mut widths.group, self.owner_width(self.owners.group(attr.gid), attr.gid));
            }
            if attr.kind.is_device() {
                fit(&mut widths.major, digits(u64::from(attr.rdev.major)));
                fit(&mut widths.minor, digits(u64::from(attr.rdev.minor)));
                let both = widths.major + 2 + widths.minor;
                fit(&mut widths.size, both);
            } else {
                fit(&mut widths.size, self.size(attr).len());
            }
            if self.settings.time.of(attr).is_none() {
                fit(&mut widths.time, 1);
            }
        }
        // All times have the same width, except those of a user-defined format, which are not aligned.
        let sample = self.clock.text(&self.settings.time_style, self.clock.now());
        widths.time = sample.chars().count();
        self.widths = widths;
    }

    fn size(&self, attr: &Attr) -> Text {
        match self.settings.size_unit {
            crate::format::size::Unit::Blocks(1) => Text::Number(attr.size),
            unit => Text::Text(unit.text(attr.size)),
        }
    }

    fn owner_width(&self, name: Option<&[u8]>, id: u32) -> usize {
        match name.filter(|_| !self.settings.numeric) {
            Some(name) => width(&escape(name, NameStyle::Escape)),
            None => digits(u64::from(id)),
        }
    }

    fn write(
        &mut self,
        out: &mut Vec<u8>,
        listing: &Listing,
        entry: &ListedEntry,
        painter: &mut Option<Painter>,
    ) {
        if self.settings.inode {
            push_number(out, entry.ino.0, self.widths.inode);
            out.push(b' ');
        }
        match &entry.attr {
            Some(attr) => self.write_attr(out, entry, attr),
            None => self.write_unknown(out, entry),
        }
        paint(out, listing.name(entry), entry, self.settings, self.widths.quoted, painter);
        self.write_end(out, entry, painter);
    }

    fn write_attr(&mut self, out: &mut Vec<u8>, entry: &ListedEntry, attr: &Attr) {
        let settings = self.settings;
        if settings.blocks {
            let blocks = settings.block_unit.text(attr.blocks.saturating_mul(512));
            push_right(out, blocks.as_bytes(), self.widths.blocks);
            out.push(b' ');
        }
        out.extend_from_slice(&mode_string(attr.kind, attr.mode));
        if self.widths.marked {
            out.push(entry.mark);
        }
        out.push(b' ');
        push_number(out, u64::from(attr.nlink), self.widths.nlink);
        out.push(b' ');
        if settings.owner {
            self.write_owner(out, self.owners.user(attr.uid), attr.uid, self.widths.user);
        }
        if settings.group {
            self.write_owner(out, self.owners.group(attr.gid), attr.gid, self.widths.group);
        }
        self.write_size(out, attr);
        out.push(b' ');
        match settings.time.of(attr) {
            Some(time) => self.clock.write(out, &settings.time_style, time),
            None => push_right(out, b"?", self.widths.time),
        }
        out.push(b' ');
    }

    /// Writes a name left-aligned or a number right-aligned.
    fn write_owner(&self, out: &mut Vec<u8>, name: Option<&[u8]>, id: u32, width_: usize) {
        match name.filter(|_| !self.settings.numeric) {
            Some(name) => {
                let name = escape(name, NameStyle::Escape);
                push_left(out, &name, width(&name), width_);
            }
            None => push_number(out, u64::from(id), width_),
        }
        out.push(b' ');
    }

    fn write_size(&self, out: &mut Vec<u8>, attr: &Attr) {
        if attr.kind.is_device() {
            let widths = &self.widths;
            let blanks = widths.size.saturating_sub(widths.major + 2 + widths.minor);
            push_number(out, u64::from(attr.rdev.major), widths.major + blanks);
            out.extend_from_slice(b", ");
            push_number(out, u64::from(attr.rdev.minor), widths.minor);
        } else {
            match self.size(attr) {
                Text::Number(number) => push_number(out, number, self.widths.size),
                Text::Text(text) => push_right(out, text.as_bytes(), self.widths.size),
            }
        }
    }

    /// Writes question marks for an inode that cannot be read.
    fn write_unknown(&self, out: &mut Vec<u8>, entry: &ListedEntry) {
        let widths = &self.widths;
        if self.settings.blocks {
            push_right(out, b"? ", widths.blocks + 1);
        }
        out.push(entry.kind().map_or(b'?', kind_letter));
        out.extend_from_slice(b"?????????");
        out.extend_from_slice(if widths.marked { b"? " } else { b" " });
        push_right(out, b"? ", widths.nlink + 1);
        for (shown, width) in [(self.settings.owner, widths.user), (self.settings.group, widths.group)] {
            if shown {
                push_left(out, b"?", 1, width);
                out.push(b' ');
            }
        }
        push_right(out, b"? ", widths.size + 1);
        push_right(out, b"? ", widths.time + 1);
    }

    /// Writes the text after the name: the target of a link, or a letter for the type.
    fn write_end(&self, out: &mut Vec<u8>, entry: &ListedEntry, painter: &mut Option<Painter>) {
        let Some(target) = &entry.target else {
            return out.extend(indicator(entry, self.settings));
        };
        out.extend_from_slice(b" -> ");
        let text = escape(target, self.settings.quoting);
        match (painter, entry.target_look()) {
            (Some(painter), Some(look)) => painter.paint(out, target, look, &text),
            _ => out.extend_from_slice(&text),
        }
        if let (Indicator::All | Indicator::Type, super::gather::AtTarget::File(attr)) =
            (self.settings.indicator, &entry.at_target)
            && attr.kind != FileKind::Symlink
        {
            out.extend(mark(attr.kind, attr.mode, self.settings));
        }
    }
}

/// A size; a number except for devices.
enum Text {
    Number(u64),
    Text(String),
}

impl Text {
    fn len(&self) -> usize {
        match self {
            Self::Number(number) => digits(*number),
            Self::Text(text) => text.len(),
        }
    }
}
