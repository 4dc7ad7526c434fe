//! Backups of replaced files: `--backup` of GNU cp, mv and ln.
//!
//! Source: the GNU coreutils manual, "Backup options"; gnulib's backupfile.c for details that the manual
//! omits.

/// How a replaced file is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Backup {
    /// Not at all.
    #[default]
    None,
    /// As `FILE~`, with this suffix in place of `~`.
    Simple(Vec<u8>),
    /// As `FILE.~1~`, with the number after the highest existing one.
    Numbered,
    /// Numbered if a numbered backup exists, otherwise simple with this suffix.
    Existing(Vec<u8>),
}

impl Backup {
    /// Returns the name of the backup of `name`, or `None` for no backup. `listed` returns the names in the
    /// directory, and is called only for numbered backups. Fails with the errors of `listed`.
    pub fn name_for<E>(
        &self,
        name: &[u8],
        listed: impl FnOnce() -> Result<Vec<Vec<u8>>, E>,
    ) -> Result<Option<Vec<u8>>, E> {
        let highest = match self {
            Self::Numbered | Self::Existing(_) => {
                listed()?.iter().filter_map(|other| number(name, other)).max().unwrap_or(0)
            }
            Self::None | Self::Simple(_) => 0,
        };
        Ok(match self {
            Self::None => None,
            Self::Simple(suffix) => Some([name, suffix].concat()),
            Self::Existing(suffix) if highest == 0 => Some([name, suffix].concat()),
            Self::Numbered | Self::Existing(_) => {
                Some([name, format!(".~{}~", highest.saturating_add(1)).as_bytes()].concat())
            }
        })
    }
}

/// Returns the number of `other` if it is a numbered backup of `name`.
fn number(name: &[u8], other: &[u8]) -> Option<u64> {
    let digits = other.strip_prefix(name)?.strip_prefix(b".~")?.strip_suffix(b"~")?;
    let is_number =
        digits.first().is_some_and(|&digit| digit != b'0') && digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok()?.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_are_called_as_gnu_calls_them() {
        let listed =
            ["f", "f.~2~", "f.~10~", "f.~011~", "f.~x~", "g.~50~", "f~"].map(|name| name.as_bytes().to_vec());
        let name = |backup: &Backup, name: &[u8]| {
            let found = backup.name_for(name, || Ok::<_, ()>(listed.to_vec())).unwrap();
            found.map(|name| String::from_utf8(name).unwrap())
        };
        assert_eq!(name(&Backup::None, b"f"), None);
        assert_eq!(name(&Backup::Simple(b".old".to_vec()), b"f").as_deref(), Some("f.old"));
        assert_eq!(name(&Backup::Numbered, b"f").as_deref(), Some("f.~11~"));
        assert_eq!(name(&Backup::Numbered, b"h").as_deref(), Some("h.~1~"));
        let existing = Backup::Existing(b"~".to_vec());
        assert_eq!(name(&existing, b"g").as_deref(), Some("g.~51~"));
        assert_eq!(name(&existing, b"h").as_deref(), Some("h~"));
    }
}
