//! `-b`, `--backup` and `-S` of cp, mv and ln.
//!
//! Source: the GNU coreutils manual, "Backup options".

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use obento::copy::Backup;

use crate::report::{Report, subject};

/// The options of backups.
#[derive(clap::Args, Debug)]
pub struct BackupArgs {
    /// Back up files that are replaced: none, simple (FILE~), numbered (FILE.~1~) or existing (numbered if numbered backups exist)
    #[arg(long, value_name = "CONTROL", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    backup: Option<OsString>,
    /// Back up files that are replaced, by the method that $VERSION_CONTROL names
    #[arg(short = 'b')]
    existing: bool,
    /// The suffix of simple backups; the default is ~
    #[arg(short = 'S', long, value_name = "SUFFIX")]
    suffix: Option<OsString>,
}

impl BackupArgs {
    /// Returns the kind of backup. Without --backup=CONTROL, `$VERSION_CONTROL` selects the kind. Fails if the
    /// word is unknown.
    pub fn backup(&self) -> Result<Backup, Report> {
        if self.backup.is_none() && !self.existing && self.suffix.is_none() {
            return Ok(Backup::None);
        }
        let said = self.backup.clone().filter(|control| !control.is_empty());
        let control = said.or_else(|| std::env::var_os("VERSION_CONTROL")).unwrap_or_default();
        let suffix = self.suffix.clone().or_else(|| std::env::var_os("SIMPLE_BACKUP_SUFFIX"));
        parse(&control, suffix)
    }
}

/// Parses a kind of backup, which may be abbreviated to an unambiguous prefix.
fn parse(control: &OsStr, suffix: Option<OsString>) -> Result<Backup, Report> {
    const WORDS: [(&str, usize); 8] = [
        ("none", 2),
        ("off", 1),
        ("simple", 1),
        ("never", 2),
        ("existing", 1),
        ("nil", 2),
        ("numbered", 2),
        ("t", 1),
    ];
    // A suffix with a slash would put the backup into another directory.
    let is_name = |suffix: &OsString| !suffix.is_empty() && !suffix.as_bytes().contains(&b'/');
    let suffix = || suffix.filter(is_name).unwrap_or_else(|| "~".into()).into_vec();
    let control = control.as_bytes();
    let word =
        WORDS.iter().find(|(word, least)| control.len() >= *least && word.as_bytes().starts_with(control));
    match word {
        Some(("none" | "off", _)) => Ok(Backup::None),
        Some(("simple" | "never", _)) => Ok(Backup::Simple(suffix())),
        Some(("numbered" | "t", _)) => Ok(Backup::Numbered),
        Some(_) => Ok(Backup::Existing(suffix())),
        None if control.is_empty() => Ok(Backup::Existing(suffix())),
        None => Err(Report::plain(format!("invalid backup method {}", subject(control)))
            .help("use none, simple, numbered or existing in --backup or VERSION_CONTROL")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_suffixes_have_the_meaning_of_gnu() {
        let parse =
            |control: &str, suffix: Option<&str>| parse(OsStr::new(control), suffix.map(Into::into)).ok();
        assert_eq!(parse("", None), Some(Backup::Existing(b"~".to_vec())));
        assert_eq!(parse("nil", Some(".old")), Some(Backup::Existing(b".old".to_vec())));
        for (control, expected) in
            [("off", Backup::None), ("t", Backup::Numbered), ("numb", Backup::Numbered)]
        {
            assert_eq!(parse(control, None), Some(expected));
        }
        for suffix in ["", "../x", "/"] {
            assert_eq!(parse("simple", Some(suffix)), Some(Backup::Simple(b"~".to_vec())));
        }
        assert_eq!((parse("n", None), parse("sometimes", None)), (None, None));
    }
}
