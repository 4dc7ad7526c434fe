//! Random plans by seed.
//!
//! A list of the expected names selects operations that mostly succeed; some must fail.

use std::ops::Range;

use obento_base::FileKind;
use obento_driver::{RenameFlags, Size, XattrMode};

use crate::mutants::Random;
use crate::plan::{Op, Plan, Space};
use crate::snapshot::Snapshot;

/// The limits of a random plan.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The number of operations.
    pub ops: usize,
    /// The greatest length that a file gets in one step.
    pub file: u64,
    /// The greatest length of the value of an attribute.
    pub xattr: usize,
    /// The alignment of ranges to collapse or insert; 0 for none.
    pub grain: u64,
    /// Whether the format can allocate and free space (`fallocate`).
    pub space: bool,
    /// The interval of syncs in operations; 0 for none.
    pub sync: u64,
    /// The greatest number of names in a directory.
    pub names: u64,
}

impl Limits {
    /// Forty operations on small files, with some syncs.
    pub const SMALL: Self =
        Self { ops: 40, file: 24 << 10, xattr: 200, grain: 4096, space: true, sync: 6, names: 12 };
}

/// Returns the plan with this seed, for an empty volume.
pub fn random(seed: u64, limits: &Limits) -> Plan {
    random_over(seed, limits, &Snapshot::default())
}

/// Returns the plan with this seed, for a volume that contains `tree`.
pub fn random_over(seed: u64, limits: &Limits, tree: &Snapshot) -> Plan {
    let paths = |wanted: fn(FileKind) -> bool| -> Vec<String> {
        let named = tree.names().filter(|(path, object)| wanted(object.meta.kind) && !path.is_empty());
        let mut paths: Vec<String> =
            named.filter_map(|(path, _)| String::from_utf8(path.clone()).ok()).collect();
        paths.sort();
        paths
    };
    let mut dirs = paths(|kind| kind == FileKind::Directory);
    dirs.retain(|dir| dir != "lost+found");
    dirs.push(String::new());
    let mut maker = Maker {
        random: Random::new(seed ^ 0x706c_616e),
        limits,
        dirs,
        files: paths(|kind| kind == FileKind::Regular),
        others: paths(|kind| !matches!(kind, FileKind::Regular | FileKind::Directory)),
    };
    let ops: Vec<Op> = (0..limits.ops).map(|_| maker.op()).collect();
    Plan::new(format!("random-{seed}"), ops)
}

struct Maker<'a> {
    random: Random,
    limits: &'a Limits,
    dirs: Vec<String>,
    files: Vec<String>,
    others: Vec<String>,
}

impl Maker<'_> {
    fn below(&mut self, end: u64) -> u64 {
        self.random.below(end.max(1))
    }

    fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }

    fn any(&mut self, list: fn(&Self) -> &Vec<String>) -> Option<String> {
        let len = list(self).len() as u64;
        let at = self.below(len) as usize;
        list(self).get(at).cloned()
    }

    fn dir(&mut self) -> String {
        self.any(|maker| &maker.dirs).unwrap_or_default()
    }

    /// Returns a name in some directory: usually short, sometimes as long as possible.
    fn name(&mut self) -> String {
        let dir = self.dir();
        let number = self.below(self.limits.names);
        let name = if self.one_in(8) { format!("{number:0>200}") } else { format!("n{number}") };
        if dir.is_empty() { name } else { format!("{dir}/{name}") }
    }

    fn file(&mut self) -> String {
        match self.any(|maker| &maker.files) {
            Some(path) if !self.one_in(20) => path,
            _ => self.name(),
        }
    }

    fn anything(&mut self) -> String {
        let lists: [fn(&Self) -> &Vec<String>; 3] =
            [|maker| &maker.files, |maker| &maker.dirs, |maker| &maker.others];
        let list = lists[self.below(3) as usize];
        self.any(list).filter(|path| !path.is_empty()).unwrap_or_else(|| self.name())
    }

    fn knows(&self, path: &str) -> bool {
        [&self.dirs, &self.files, &self.others].iter().any(|list| list.iter().any(|known| known == path))
    }

    fn forget(&mut self, path: &str) {
        for list in [&mut self.dirs, &mut self.files, &mut self.others] {
            list.retain(|known| known != path);
        }
    }

    fn op(&mut self) -> Op {
        if self.one_in(self.limits.sync) {
            return if self.one_in(3) { Op::Sync } else { Op::Fsync(self.anything()) };
        }
        match self.below(32) {
            0..=4 => self.create(),
            5 => self.symlink(),
            6..=7 => self.link(),
            8..=9 => self.unlink(),
            10 => self.rmdir(),
            11..=13 => self.rename(),
            14..=17 => self.write(),
            18..=20 => {
                let len = 1 + self.below(self.limits.file / 3) as usize;
                Op::Append(self.file(), len)
            }
            21..=22 => {
                let size = self.below(self.limits.file);
                Op::Truncate(self.file(), size)
            }
            23..=25 => self.space(),
            26..=27 => self.xattr(),
            28 => self.remove_xattr(),
            29..=30 => self.attributes(),
            _ if self.one_in(2) => Op::Hold(self.file()),
            _ => Op::Release,
        }
    }

    fn create(&mut self) -> Op {
        let path = self.name();
        let kind = match self.below(12) {
            0..=6 => FileKind::Regular,
            7..=9 => FileKind::Directory,
            10 => FileKind::Fifo,
            _ => FileKind::BlockDevice,
        };
        if !self.knows(&path) {
            let list = match kind {
                FileKind::Regular => &mut self.files,
                FileKind::Directory => &mut self.dirs,
                _ => &mut self.others,
            };
            list.push(path.clone());
        }
        Op::Create(path, kind, [0o644, 0o755, 0o600, 0o4711][self.below(4) as usize])
    }

    fn symlink(&mut self) -> Op {
        let path = self.name();
        if !self.knows(&path) {
            self.others.push(path.clone());
        }
        let len = if self.one_in(2) { 1 + self.below(59) } else { 60 + self.below(700) };
        Op::Symlink(path, len as usize)
    }

    fn link(&mut self) -> Op {
        let (from, to) = (self.file(), self.name());
        if self.files.contains(&from) && !self.knows(&to) {
            self.files.push(to.clone());
        }
        Op::Link(from, to)
    }

    fn unlink(&mut self) -> Op {
        let path = if self.one_in(3) { self.anything() } else { self.file() };
        if !self.dirs.contains(&path) {
            self.forget(&path);
        }
        Op::Unlink(path)
    }

    fn rmdir(&mut self) -> Op {
        let path = self.dir();
        let path = if path.is_empty() { self.name() } else { path };
        let prefix = format!("{path}/");
        let lists = [&self.dirs, &self.files, &self.others];
        if !lists.iter().any(|list| list.iter().any(|known| known.starts_with(&prefix))) {
            self.forget(&path);
        }
        Op::Rmdir(path)
    }

    fn rename(&mut self) -> Op {
        let from = self.anything();
        let to = if self.one_in(3) { self.anything() } else { self.name() };
        let flags = match self.below(6) {
            0 => RenameFlags::NO_REPLACE,
            1 => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        let moves = self.files.contains(&from) || self.others.contains(&from);
        if flags.is_empty() && from != to && moves && !self.dirs.contains(&to) {
            let is_file = self.files.contains(&from);
            self.forget(&from);
            self.forget(&to);
            if is_file { &mut self.files } else { &mut self.others }.push(to.clone());
        }
        Op::Rename(from, to, flags)
    }

    fn write(&mut self) -> Op {
        let at = self.below(self.limits.file);
        // Also offsets at block boundaries.
        let at = if self.one_in(3) { at & !4095 } else { at };
        let len = match self.below(3) {
            0 => 4096,
            1 => 1 + self.below(600),
            _ => 1 + self.below(self.limits.file / 2),
        };
        Op::Write(self.file(), at, len as usize)
    }

    fn range(&mut self, grain: u64) -> Range<u64> {
        let start = self.below(self.limits.file) / grain * grain;
        let len = (1 + self.below(self.limits.file / 2)).div_ceil(grain) * grain;
        start..start + len
    }

    fn space(&mut self) -> Op {
        let (path, size) = (self.file(), if self.one_in(2) { Size::Keep } else { Size::Grow });
        if !self.limits.space {
            let size = self.below(self.limits.file);
            return Op::Truncate(path, size);
        }
        let kinds = if self.limits.grain > 0 { 5 } else { 3 };
        let (space, grain) = match self.below(kinds) {
            0 => (Space::Allocate(size), 1),
            1 => (Space::Zero(size), 1),
            2 => (Space::Punch, 1),
            3 => (Space::Collapse, self.limits.grain),
            _ => (Space::Insert, self.limits.grain),
        };
        let grain = if grain == 1 && self.one_in(2) { 4096 } else { grain };
        let range = self.range(grain);
        Op::Space(path, space, range)
    }

    fn xattr(&mut self) -> Op {
        let path = if self.one_in(3) { self.dir() } else { self.file() };
        let name = ["user.a", "user.b", "trusted.c", "user.a-longer-name"][self.below(4) as usize];
        let len = if self.one_in(4) { self.limits.xattr as u64 } else { 40.min(self.limits.xattr as u64) };
        let mode = match self.below(6) {
            0 => XattrMode::Create,
            1 => XattrMode::Replace,
            _ => XattrMode::Set,
        };
        let len = self.below(len + 1) as usize;
        Op::SetXattr(path, name.into(), len, mode)
    }

    fn remove_xattr(&mut self) -> Op {
        let path = if self.one_in(3) { self.dir() } else { self.file() };
        Op::RemoveXattr(path, ["user.a", "user.b", "trusted.c"][self.below(3) as usize].into())
    }

    fn attributes(&mut self) -> Op {
        let path = self.anything();
        match self.below(4) {
            0 => Op::Chmod(path, [0o600, 0o640, 0o777][self.below(3) as usize]),
            1 => Op::Chown(path, 70_000, self.below(100_000) as u32),
            2 => Op::Utime(path, [0, -5, 1 << 31, 946_684_800][self.below(4) as usize]),
            _ => Op::Flags(path, 0x40 * self.below(4) as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_plan_and_different_seeds_differ() {
        let plans = [1, 1, 2].map(|seed| random(seed, &Limits::SMALL));
        assert!(plans[0] == plans[1] && plans[0] != plans[2]);
        assert_eq!(plans[0].ops.len(), 40);
    }
}
