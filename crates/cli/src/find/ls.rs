//! `-ls`: the format of `ls -dils` in GNU find.
//!
//! Source: findutils, the manual's "Print File Information", and its output: columns become as wide as
//! their contents and never narrower again.

use obento::base::{Attr, Timestamp};

use crate::format::mode::mode_string;

use super::stamp::Zone;

/// Widths of the columns so far.
#[derive(Clone, Debug)]
pub struct Columns {
    inode: usize,
    blocks: usize,
    links: usize,
    user: usize,
    group: usize,
    size: usize,
    major: usize,
    minor: usize,
}

impl Default for Columns {
    fn default() -> Self {
        Self { inode: 9, blocks: 6, links: 3, user: 8, group: 8, size: 8, major: 3, minor: 3 }
    }
}

/// Widens `width` to that of `text`, and returns it.
fn grow(width: &mut usize, text: &str) -> usize {
    *width = (*width).max(text.chars().count());
    *width
}

impl Columns {
    /// Returns the line of a file up to its name.
    pub fn line(&mut self, attr: &Attr, user: &str, group: &str, now: Timestamp, zone: &Zone) -> String {
        let mut line = String::new();
        let mut right = |width: &mut usize, text: String, end: &str| {
            let width = grow(width, &text);
            line.push_str(&format!("{text:>width$}{end}"));
        };
        right(&mut self.inode, attr.ino.to_string(), " ");
        right(&mut self.blocks, attr.blocks.div_ceil(2).to_string(), " ");
        right(&mut 0, String::from_utf8_lossy(&mode_string(attr.kind, attr.mode)).into_owned(), " ");
        right(&mut self.links, attr.nlink.to_string(), " ");
        for (width, name) in [(&mut self.user, user), (&mut self.group, group)] {
            let width = grow(width, name);
            line.push_str(&format!("{name:<width$} "));
        }
        let mut right = |width: &mut usize, text: String, end: &str| {
            let width = grow(width, &text);
            line.push_str(&format!("{text:>width$}{end}"));
        };
        if attr.kind.is_device() {
            right(&mut self.major, attr.rdev.major.to_string(), ", ");
            right(&mut self.minor, attr.rdev.minor.to_string(), " ");
        } else {
            right(&mut self.size, attr.size.to_string(), " ");
        }
        line + &short_time(attr.mtime, now, zone) + " "
    }
}

/// Returns month and day, with the time of day for the last six months (of 30 days) and the year
/// otherwise. Up to an hour in the future counts as the present.
fn short_time(time: Timestamp, now: Timestamp, zone: &Zone) -> String {
    let age = now.secs().saturating_sub(time.secs());
    let recent = (-3600..=6 * 30 * 86_400).contains(&age);
    zone.strftime(if recent { "%b %e %H:%M" } else { "%b %e  %Y" }, time)
}
