//! The names of one directory: invalid names, and names of two entries.
//!
//! An entry has its short name and possibly a long name. No name of one entry may equal a name of another entry, except
//! for case, since a lookup would find only the first one. The later entry is changed. A long name that another entry
//! has is removed, and a short name is replaced by a name in the form of `fsck.fat`.
//! Invariant: memory is at most proportional to the size of the directory.

use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashSet;
use obento_base::{Error, Result};

use super::chain::Named;
use super::edit::Edit;
use super::issue::Issue;
use super::pass::Pass;
use super::tree::Slots;
use crate::inode::Kind;
use crate::name::{CodePage, Folded, ShortName, checksum, to_bytes};

/// `DIR_NTRes`: the entry has only a long name (dosfstools, `FAT_NO_83`).
pub(super) const NO_SHORT_NAME: u8 = 0x20;

/// The treatment of the long name of an entry that gets another short name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Long {
    Keep,
    Drop,
}

/// The names of a directory.
pub struct Names {
    /// The short names of previous entries.
    shorts: HashSet<ShortName>,
    /// All names of previous entries, folded for comparison.
    seen: HashSet<Folded>,
    /// All short names of the directory, none of which is given to another entry.
    all: HashSet<ShortName>,
    given: u32,
}

impl Names {
    /// Returns the short names in `slots`. Fails with `NoMemory`.
    pub fn new(slots: &Slots) -> Result<Self> {
        let mut all = HashSet::new();
        for (_, raw) in slots {
            if matches!(raw.kind(), Kind::File | Kind::Dots) {
                all.try_reserve(1).map_err(|_| Error::NoMemory)?;
                all.insert(raw.name());
            }
        }
        Ok(Self { shorts: HashSet::new(), seen: HashSet::new(), all, given: 0 })
    }

    /// Checks the names of an entry. Fails with `NoMemory`.
    pub fn check(
        &mut self,
        dir: u64,
        named: &Named<'_>,
        long: Option<&[u16]>,
        pass: &mut Pass<'_>,
    ) -> Result<()> {
        let (ino, short) = (named.ino(), named.raw.name());
        let has_short = named.raw.DIR_NTRes & NO_SHORT_NAME == 0;
        // The short name of an entry that claims to have none is ignored.
        let is_bad = if has_short { is_bad(short) } else { named.parts.is_empty() };
        let is_first = self.shorts.insert(short);
        let name = short.0.to_vec();
        let issue = match () {
            () if is_bad => Issue::EntryName { ino, dir, name },
            () if !is_first => Issue::DuplicateName { ino, dir, name },
            () => return self.compare(dir, named, long, pass),
        };
        let taken = long.is_some_and(|long| self.seen.contains(&Folded::new(long)));
        let edits = self.rename(named, if taken { Long::Drop } else { Long::Keep });
        if let Some(long) = long.filter(|_| !taken) {
            self.see(Folded::new(long))?;
        }
        pass.found(issue, edits);
        Ok(())
    }

    /// Compares the names of an entry, whose short name is unique, with those of the previous entries.
    fn compare(
        &mut self,
        dir: u64,
        named: &Named<'_>,
        long: Option<&[u16]>,
        pass: &mut Pass<'_>,
    ) -> Result<()> {
        let short = named.raw.name();
        // The meaning of other bytes of a short name depends on the code page.
        let has_short = short.0.is_ascii() && named.raw.DIR_NTRes & NO_SHORT_NAME == 0;
        let short = has_short.then(|| Folded::new(&short.to_units(CodePage::default(), 0)));
        let long_name = long.map(Folded::new);
        let is_taken = |name: &Option<Folded>| name.as_ref().is_some_and(|name| self.seen.contains(name));
        let (short_taken, long_taken) = (is_taken(&short), is_taken(&long_name));
        if short_taken || long_taken {
            let edits = if short_taken || !has_short {
                self.rename(named, if long_taken { Long::Drop } else { Long::Keep })
            } else {
                named.parts.iter().map(|&offset| Edit::write(offset, &[0xe5])).collect()
            };
            let name = match long.filter(|_| long_taken) {
                Some(long) => to_bytes(long.iter().copied()),
                None => named.raw.DIR_Name.to_vec(),
            };
            pass.found(Issue::DuplicateName { ino: named.ino(), dir, name }, edits);
        }
        for name in short.into_iter().chain(long_name.filter(|_| !long_taken)) {
            self.see(name)?;
        }
        Ok(())
    }

    fn see(&mut self, name: Folded) -> Result<()> {
        self.seen.try_reserve(1).map_err(|_| Error::NoMemory)?;
        self.seen.insert(name);
        Ok(())
    }

    /// Returns edits that give an entry another short name, and its long name the new checksum, or remove the long
    /// name.
    fn rename(&mut self, named: &Named<'_>, long: Long) -> Vec<Edit> {
        let (case, short) = (named.raw.DIR_NTRes & !NO_SHORT_NAME, self.another());
        let mut edits =
            vec![Edit::write(named.offset, &short.0), Edit::write(named.offset.saturating_add(0xc), &[case])];
        edits.extend(named.parts.iter().map(|&offset| match long {
            Long::Keep => Edit::write(offset.saturating_add(0xd), &[checksum(short)]),
            Long::Drop => Edit::write(offset, &[0xe5]),
        }));
        edits
    }

    /// Returns a name that no entry has, in the form of `fsck.fat`.
    fn another(&mut self) -> ShortName {
        loop {
            let digits = alloc::format!("FSCK{:07}", self.given);
            self.given = self.given.saturating_add(1);
            let mut bytes = [b'0'; 11];
            bytes.iter_mut().zip(digits.bytes()).for_each(|(to, from)| *to = from);
            let units = ShortName(bytes).to_units(CodePage::default(), 0);
            if !self.seen.contains(&Folded::new(&units)) && self.all.insert(ShortName(bytes)) {
                return ShortName(bytes);
            }
        }
    }
}

/// Returns whether this short name is invalid.
fn is_bad(name: ShortName) -> bool {
    let [first, rest @ ..] = name.0;
    let is_bad = |byte: u8| byte < 0x20 || byte == 0x7f || b"*?<>|\"\\/:.".contains(&byte);
    first == b' ' || first != 0x05 && is_bad(first) || rest.into_iter().any(is_bad)
}
