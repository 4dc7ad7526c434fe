//! `user:group` as chown(1) takes it, with the names of the image.
//!
//! Source: the GNU coreutils manual, "chown invocation".

use obento::volume::Owners;

use crate::report::{Report, subject};

/// A new owner and group; `None` keeps the present one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ownership {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

impl Ownership {
    /// Parses `user`, `user:group`, `:group`, or `user:`, which means the login group of the user. A name of the image precedes a number;
    /// `+1000` is always a number. `user.group` is accepted too, if no user has that name.
    pub fn parse(text: &[u8], owners: &Owners) -> Result<Self, Report> {
        let Some(colon) = text.iter().position(|&b| b == b':') else {
            let uid = some(text, |name| parse_user(name, owners));
            return uid.map(|uid| Self { uid, gid: None }).or_else(|error| dotted(text, owners).ok_or(error));
        };
        let (user, group) = (&text[..colon], &text[colon + 1..]);
        let uid = some(user, |name| parse_user(name, owners))?;
        let gid = match (uid, group) {
            (Some(uid), b"") => Some(login_group(uid, user, owners)?),
            _ => some(group, |name| parse_group(name, owners))?,
        };
        Ok(Self { uid, gid })
    }

    /// Parses a group, for chgrp(1).
    pub fn parse_group(text: &[u8], owners: &Owners) -> Result<Self, Report> {
        Ok(Self { uid: None, gid: some(text, |name| parse_group(name, owners))? })
    }

    /// Returns whether a file of this owner and group matches `self`, for `--from`.
    pub fn covers(self, uid: u32, gid: u32) -> bool {
        self.uid.is_none_or(|own| own == uid) && self.gid.is_none_or(|own| own == gid)
    }
}

/// Returns `user:group`, with names if the image has them.
pub fn words(ownership: Ownership, owners: &Owners) -> String {
    let name = |name: Option<&[u8]>, id: u32| name.map_or_else(|| id.to_string(), crate::report::printable);
    let user = ownership.uid.map(|uid| name(owners.user(uid), uid));
    let group = ownership.gid.map(|gid| name(owners.group(gid), gid));
    [user, group].into_iter().flatten().collect::<Vec<_>>().join(":")
}

/// Parses `user.group`, if both exist.
fn dotted(text: &[u8], owners: &Owners) -> Option<Ownership> {
    let dot = text.iter().position(|&b| b == b'.')?;
    let (uid, gid) = (parse_user(&text[..dot], owners).ok()?, parse_group(&text[dot + 1..], owners).ok()?);
    Some(Ownership { uid: Some(uid), gid: Some(gid) })
}

fn some(text: &[u8], parse: impl FnOnce(&[u8]) -> Result<u32, Report>) -> Result<Option<u32>, Report> {
    if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
}

/// Returns the number of a user, given by name or number.
pub fn parse_user(name: &[u8], owners: &Owners) -> Result<u32, Report> {
    owners.uid(name).or_else(|| number(name)).ok_or_else(|| unknown("user", name, "/etc/passwd"))
}

/// Returns the number of a group, given by name or number.
pub fn parse_group(name: &[u8], owners: &Owners) -> Result<u32, Report> {
    owners.gid(name).or_else(|| number(name)).ok_or_else(|| unknown("group", name, "/etc/group"))
}

fn login_group(uid: u32, user: &[u8], owners: &Owners) -> Result<u32, Report> {
    owners.login_group(uid).ok_or_else(|| unknown("login group of", user, "/etc/passwd"))
}

fn number(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    // chown(2) takes -1 for "no change".
    str::from_utf8(digits).ok()?.parse().ok().filter(|&id| is_number && id != u32::MAX)
}

fn unknown(what: &str, name: &[u8], file: &str) -> Report {
    Report::new(format!("unknown {what} {}", subject(name)), format!("not in {file} of the image"))
        .help("use a number from 0 to 4294967294")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners() -> Owners {
        Owners::from_files(
            b"root:x:0:0::\nann:x:1000:100::\n7:x:70:7::\nann.root:x:9:9::\n",
            b"root:x:0:\nstaff:x:50:\n",
        )
    }

    fn parse(text: &str) -> Option<(Option<u32>, Option<u32>)> {
        Ownership::parse(text.as_bytes(), &owners()).ok().map(|owner| (owner.uid, owner.gid))
    }

    #[test]
    fn owners_are_names_of_the_image_or_numbers() {
        assert_eq!(parse("ann"), Some((Some(1000), None)));
        assert_eq!(parse("ann:staff"), Some((Some(1000), Some(50))));
        assert_eq!(parse("ann:"), Some((Some(1000), Some(100))));
        assert_eq!(parse(":staff"), Some((None, Some(50))));
        assert_eq!(parse(":"), Some((None, None)));
        assert_eq!(parse("4294967294:0"), Some((Some(u32::MAX - 1), Some(0))));
        assert_eq!(parse("7"), Some((Some(70), None)), "a name counts before a number");
        assert_eq!(parse("+7"), Some((Some(7), None)));
        assert_eq!(parse("ann.staff"), Some((Some(1000), Some(50))));
        assert_eq!(parse("5.6"), Some((Some(5), Some(6))));
        assert_eq!(parse("ann.root"), Some((Some(9), None)), "a user's name may have a dot");
        for bad in ["ann.bob", ".staff", "ann.", "bob", "ann:bob", "-1", "4294967295", "12:", "1x", "++1"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_owner_without_a_name_is_shown_as_a_number() {
        let text = |uid, gid| words(Ownership { uid, gid }, &owners());
        assert_eq!(text(Some(1000), Some(50)), "ann:staff");
        assert_eq!(text(Some(5), None), "5");
        assert_eq!(text(None, Some(0)), "root");
    }
}
