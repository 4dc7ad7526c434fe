//! The order of a listing.

use std::cmp::{Ordering, Reverse};

use obento::base::{Attr, FileKind, Timestamp};

use super::gather::{ListedEntry, Listing};
use super::settings::{Settings, SortBy};
use super::version;
use crate::escape::{escape, width};
use crate::open::Found;

/// Sorts the entries as the settings require.
pub fn sort(listing: &mut Listing, settings: &Settings) {
    let mut entries = std::mem::take(&mut listing.entries);
    if settings.sort != SortBy::Nothing {
        entries.sort_unstable_by(|a, b| {
            let order =
                compare(settings, (listing.name(a), a.attr.as_ref()), (listing.name(b), b.attr.as_ref()));
            directories_first(settings, a, b).then(order)
        });
    }
    listing.entries = entries;
}

/// Compares two directories that are operands.
pub fn compare_operands(a: &Found, b: &Found, settings: &Settings) -> Ordering {
    if settings.sort == SortBy::Nothing {
        return Ordering::Equal;
    }
    let (a_attr, b_attr) = (a.node.attr().ok(), b.node.attr().ok());
    compare(settings, (&a.shown(), a_attr.as_ref()), (&b.shown(), b_attr.as_ref()))
}

fn compare(settings: &Settings, a: (&[u8], Option<&Attr>), b: (&[u8], Option<&Attr>)) -> Ordering {
    let by_name = || a.0.cmp(b.0);
    let order = match settings.sort {
        SortBy::Name | SortBy::Nothing => by_name(),
        SortBy::Size => {
            let size = |attr: Option<&Attr>| Reverse(attr.map_or(0, |attr| attr.size));
            size(a.1).cmp(&size(b.1)).then_with(by_name)
        }
        SortBy::Time => {
            let time = |attr: Option<&Attr>| {
                Reverse(attr.and_then(|attr| settings.time.of(attr)).unwrap_or(Timestamp::EPOCH))
            };
            time(a.1).cmp(&time(b.1)).then_with(by_name)
        }
        SortBy::Version => version::compare(a.0, b.0).then_with(by_name),
        SortBy::Width => {
            let shown = |name| width(&escape(name, settings.quoting));
            shown(a.0).cmp(&shown(b.0)).then_with(by_name)
        }
        SortBy::Extension => extension(a.0).cmp(extension(b.0)).then_with(by_name),
    };
    if settings.reverse { order.reverse() } else { order }
}

/// Returns the extension: the name from its last dot, as in ls.c.
fn extension(name: &[u8]) -> &[u8] {
    name.iter().rposition(|&b| b == b'.').map_or(b"", |at| &name[at..])
}

fn directories_first(settings: &Settings, a: &ListedEntry, b: &ListedEntry) -> Ordering {
    if !settings.directories_first {
        return Ordering::Equal;
    }
    let last = |entry: &ListedEntry| entry.kind() != Some(FileKind::Directory);
    last(a).cmp(&last(b))
}
