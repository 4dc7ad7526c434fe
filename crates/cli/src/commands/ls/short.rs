//! Listings of names: one per line, or in columns.

use std::borrow::Cow;

use obento::base::FileKind;

use super::gather::{ListedEntry, Listing};
use super::settings::{Indicator, Settings, Shape};
use crate::escape::{escape, width};
use crate::format::colors::Painter;
use crate::format::columns::{Layout, indent};
use crate::format::mode::classify;
use crate::format::{digits, push_number, push_right};

/// The width of the fields before the names, and whether any name has quotes.
struct Frills {
    inode: usize,
    blocks: usize,
    quoted: bool,
}

/// Appends the listing to `out`.
pub fn write(out: &mut Vec<u8>, listing: &Listing, settings: &Settings, painter: &mut Option<Painter>) {
    let frills = Frills::new(listing, settings);
    let cell = |out: &mut Vec<u8>, entry: &ListedEntry, painter: &mut Option<Painter>| {
        frills.write(out, entry, settings);
        paint(out, listing.name(entry), entry, settings, frills.quoted, painter);
        out.extend(indicator(entry, settings));
    };
    if settings.shape == Shape::Commas {
        return commas(out, listing, settings, painter, cell);
    }
    let Shape::Columns(order) = settings.shape else {
        for entry in &listing.entries {
            cell(out, entry, painter);
            out.push(settings.end);
        }
        return;
    };
    let widths: Vec<usize> =
        listing.entries.iter().map(|e| frills.width(listing.name(e), e, settings)).collect();
    let layout = Layout::new(&widths, settings.width, order);
    for row in 0..layout.rows {
        let mut position = 0;
        let mut column_start = 0;
        for (at, column) in layout.row(row).zip(&layout.columns) {
            indent(out, position, column_start, settings.tab);
            cell(out, &listing.entries[at], painter);
            position = column_start + widths[at];
            column_start += column;
        }
        out.push(settings.end);
    }
}

/// Writes names separated by commas, in lines of the line width.
fn commas(
    out: &mut Vec<u8>,
    listing: &Listing,
    settings: &Settings,
    painter: &mut Option<Painter>,
    cell: impl Fn(&mut Vec<u8>, &ListedEntry, &mut Option<Painter>),
) {
    let frills = Frills { inode: 0, blocks: 0, quoted: false };
    let mut position = 0;
    for (number, entry) in listing.entries.iter().enumerate() {
        let inode = if settings.inode { digits(entry.ino.0) + 1 } else { 0 };
        let space = if settings.blocks { blocks(entry, settings).len() + 1 } else { 0 };
        let width = inode + space + frills.width(listing.name(entry), entry, settings);
        if number > 0 {
            let fits = settings.width == 0 || position + width + 2 < settings.width;
            out.extend_from_slice(if fits { b", " } else { b"," });
            if fits {
                position += 2;
            } else {
                out.push(settings.end);
                position = 0;
            }
        }
        cell(out, entry, painter);
        position += width;
    }
    if !listing.entries.is_empty() {
        out.push(settings.end);
    }
}

impl Frills {
    fn new(listing: &Listing, settings: &Settings) -> Self {
        if settings.shape == Shape::Commas {
            return Self { inode: 0, blocks: 0, quoted: false };
        }
        let entries = || listing.entries.iter();
        let inode = entries().map(|entry| digits(entry.ino.0)).max().unwrap_or(0);
        let blocks = entries().map(|entry| blocks(entry, settings).len()).max().unwrap_or(0);
        Self {
            inode: if settings.inode { inode } else { 0 },
            blocks: if settings.blocks { blocks } else { 0 },
            quoted: settings.align_quotes && entries().any(|entry| shown(listing.name(entry), settings).1),
        }
    }

    fn write(&self, out: &mut Vec<u8>, entry: &ListedEntry, settings: &Settings) {
        if settings.inode {
            push_number(out, entry.ino.0, self.inode);
            out.push(b' ');
        }
        if settings.blocks {
            push_right(out, blocks(entry, settings).as_bytes(), self.blocks);
            out.push(b' ');
        }
    }

    fn width(&self, name: &[u8], entry: &ListedEntry, settings: &Settings) -> usize {
        let (text, quoted) = shown(name, settings);
        let frills = [self.inode, self.blocks].into_iter().filter(|&w| w > 0).map(|w| w + 1).sum::<usize>();
        let pad = usize::from(self.quoted && !quoted);
        frills + pad + width(&text) + usize::from(indicator(entry, settings).is_some())
    }
}

fn blocks(entry: &ListedEntry, settings: &Settings) -> String {
    let text = |attr: obento::base::Attr| settings.block_unit.text(attr.blocks.saturating_mul(512));
    entry.attr.map_or_else(|| "?".to_owned(), text)
}

/// Returns a name as it is written, and whether it is quoted.
pub fn shown<'n>(name: &'n [u8], settings: &Settings) -> (Cow<'n, [u8]>, bool) {
    let text = escape(name, settings.quoting);
    let quoted = matches!(text.first(), Some(b'\'' | b'"')) && text.len() != name.len();
    (text, quoted)
}

/// Appends the name in its colour, aligned with names that have quotes.
pub fn paint(
    out: &mut Vec<u8>,
    name: &[u8],
    entry: &ListedEntry,
    settings: &Settings,
    any_quoted: bool,
    painter: &mut Option<Painter>,
) {
    let (text, quoted) = shown(name, settings);
    if any_quoted && !quoted {
        out.push(b' ');
    }
    if let Some(painter) = painter
        && let Some(look) = entry.look(painter.colors.links_as_targets())
    {
        return painter.paint(out, name, look, &text);
    }
    out.extend_from_slice(&text);
}

/// Returns the character that `-F`, `-p` and similar options append.
pub fn indicator(entry: &ListedEntry, settings: &Settings) -> Option<u8> {
    match settings.indicator {
        Indicator::Nothing => None,
        Indicator::Slash => (entry.kind() == Some(FileKind::Directory)).then_some(b'/'),
        Indicator::Type | Indicator::All => match &entry.attr {
            Some(attr) => mark(attr.kind, attr.mode, settings),
            None => mark(entry.kind()?, obento::base::Mode::new(0), settings),
        },
    }
}

/// Returns the character of a type, and `*` for an executable file if requested.
pub fn mark(kind: FileKind, mode: obento::base::Mode, settings: &Settings) -> Option<u8> {
    classify(kind, mode).filter(|&mark| settings.indicator == Indicator::All || mark != b'*')
}
