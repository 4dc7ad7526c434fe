//! A consistency check: every block has one owner, every name refers to an inode, every count is right.
//!
//! It uses the reading code, with the log replayed in memory, and repairs nothing.
//! Invariant: each inode and each indirect block is read once. Memory is one number per inode and one byte per block.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Ino, Quantity, Result};
use obento_driver::{CheckObserver, CheckReport, Cookie, Finding, Severity, ToField as _};

use crate::volume::Counters;
use crate::{Directories, Entry, Inode, LockedInode, Op, Volume};

/// Reports the inconsistencies of a volume that is open for reading to `observer`. Fails with `NoMemory`, or if the
/// device fails.
pub fn census<F: Directories>(volume: &Volume<F>, observer: &mut dyn CheckObserver) -> Result<CheckReport> {
    let op = Op::new(volume, Counters::default());
    let (seen, names, report) = (Vec::new(), Vec::new(), CheckReport::default());
    let mut pass = Pass { op: &op, observer, seen, names, report };
    pass.run()?;
    Ok(pass.report)
}

/// The state of the check.
struct Pass<'a, 'v, F> {
    op: &'a Op<'v, F>,
    observer: &'a mut dyn CheckObserver,
    /// Blocks that belong to an inode.
    seen: Vec<bool>,
    /// Number of names of each inode.
    names: Vec<u32>,
    report: CheckReport,
}

impl<'v, F: Directories> Pass<'_, 'v, F> {
    fn run(&mut self) -> Result<()> {
        let geometry = self.op.geometry();
        self.seen.try_reserve_exact(to_usize(geometry.size.into()))?;
        self.seen.resize(to_usize(geometry.size.into()), false);
        self.names.try_reserve_exact(to_usize(geometry.inodes.into()))?;
        self.names.resize(to_usize(geometry.inodes.into()), 0);
        for at in 0..geometry.data_start {
            self.claim(at);
        }
        let all = || (1..geometry.inodes).map(|number| Ino(number.into()));
        for ino in all() {
            if let Some(inode) = self.inode(ino)? {
                self.report.inodes.0 = self.report.inodes.0.saturating_add(1);
                self.blocks(&inode)?;
                if inode.is_dir() {
                    self.report.directories = self.report.directories.saturating_add(1);
                    self.directory(&inode)?;
                }
            }
        }
        for ino in all() {
            if let Some(inode) = self.inode(ino)? {
                self.links(&inode);
            }
        }
        self.bitmap()?;
        self.report.label = self.op.format().info().probe.label;
        self.report.checked = true;
        self.report.block_size = u32::try_from(geometry.block_size()).unwrap_or(u32::MAX);
        self.report.inodes.1 = geometry.inodes.saturating_sub(1).into();
        self.report.blocks.1 = geometry.size.into();
        Ok(())
    }

    /// Reports a finding about the inode or block `(field, number)`.
    fn found(&mut self, code: &'static str, severity: Severity, place: (&'static str, u64), text: String) {
        let fields = Vec::from([(place.0, place.1.to_field())]);
        if severity != Severity::Note {
            self.report.found = self.report.found.saturating_add(1);
        }
        self.observer.found(Finding { code, severity, fields, text, repaired: false });
    }

    /// Reports damage of an inode. `text` is a sentence that names the inode.
    fn damage(&mut self, code: &'static str, ino: Ino, text: String) {
        self.found(code, Severity::Damage, ("ino", ino.0), text);
    }

    /// Reports a violation of the format. The error names the damaged structure.
    fn violation(&mut self, code: &'static str, ino: Ino, error: Error) {
        self.damage(code, ino, format!("{error}"));
    }

    /// Returns the inode, if it is allocated and readable.
    fn inode(&mut self, ino: Ino) -> Result<Option<LockedInode<'v, F::Map>>> {
        match self.op.inode_if_used(ino) {
            Err(error @ Error::Corrupt(_)) => {
                self.violation("inode", ino, error);
                Ok(None)
            }
            found => found,
        }
    }

    /// Records the owner of a block. Returns false if it already has one.
    fn claim(&mut self, block: u32) -> bool {
        let slot = self.seen.get_mut(to_usize(block.into()));
        slot.is_some_and(|seen| !core::mem::replace(seen, true))
    }

    fn blocks(&mut self, inode: &Inode<F::Map>) -> Result<()> {
        let (op, mut found) = (self.op, 0_u64);
        op.format().each_block(op, inode, &mut |block| {
            found = found.saturating_add(u64::from(block != 0));
            self.own(inode, block)
        })?;
        let stored = inode.attr.blocks.checked_div(op.sectors()).unwrap_or(0);
        if found != stored {
            let (ino, stored) = (inode.ino(), Quantity::new(stored, "block"));
            self.damage("block-count", ino, format!("inode {ino} records {stored}, but has {found}"));
        }
        let mut past = op.geometry().blocks_of(inode.attr.size);
        let most = op.geometry().blocks_of(op.format().limits().file_size_max);
        while past < most {
            match op.format().walk(op, inode, past) {
                Ok((None, reach)) => past = past.saturating_add(reach),
                Ok((Some(_), _)) => {
                    let ino = inode.ino();
                    self.damage(
                        "size",
                        ino,
                        format!("inode {ino} has file block {past}, which is past its size"),
                    );
                    break;
                }
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Assigns a block to an inode. Returns false for a hole and for a block that cannot belong to a file.
    fn own(&mut self, inode: &Inode<F::Map>, block: u32) -> bool {
        if block == 0 {
            return false;
        }
        let is_data = self.op.geometry().is_data(block);
        let is_free = is_data && self.claim(block);
        let ino = inode.ino();
        if !is_data {
            let text = format!("inode {ino} refers to block {block}, which no file may use");
            self.damage("block-number", ino, text);
        } else if !is_free {
            let text = format!("inode {ino} refers to block {block}, which is already in use");
            self.damage("block-twice", ino, text);
        }
        is_free
    }

    fn directory(&mut self, dir: &Inode<F::Map>) -> Result<()> {
        let mut from = Cookie::START;
        loop {
            let (entries, next) = match self.op.format().list(self.op, dir, from) {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ok(()),
                // Reported with its blocks.
                Err(Error::Corrupt(_)) => return Ok(()),
                Err(error) => return Err(error),
            };
            for entry in entries {
                match entry {
                    Ok(entry) => self.entry(dir, &entry)?,
                    Err(error) => self.violation("entry", dir.ino(), error),
                }
            }
            from = next;
        }
    }

    fn entry(&mut self, dir: &Inode<F::Map>, entry: &Entry<F::Place>) -> Result<()> {
        let shown = || format!("directory {}: the entry '{}'", dir.ino(), entry.name);
        if let Some((code, text)) = self.op.format().misplaced(dir, entry) {
            self.damage(code, dir.ino(), format!("{} is {text}", shown()));
        }
        let Some(inode) = self.inode(entry.ino)? else {
            let text = format!("{} refers to inode {}, which is free", shown(), entry.ino);
            self.damage("entry-inode", dir.ino(), text);
            return Ok(());
        };
        if entry.kind.is_some_and(|kind| kind != inode.attr.kind) {
            let text = format!("{} has a different type than its inode", shown());
            self.damage("entry-kind", dir.ino(), text);
        }
        if inode.is_dir() {
            if inode.parent != dir.ino() || inode.ino() == F::ROOT {
                let (shown, ino) = (shown(), inode.ino());
                let text = format!("{shown} refers to directory {ino}, whose parent is another directory");
                self.damage("parent", inode.ino(), text);
            }
            self.name(dir.ino());
        }
        self.name(inode.ino());
        Ok(())
    }

    fn name(&mut self, ino: Ino) {
        if let Some(count) = self.names.get_mut(to_usize(ino.0)) {
            *count = count.saturating_add(1);
        }
    }

    fn links(&mut self, inode: &Inode<F::Map>) {
        let (ino, is_root) = (inode.ino(), inode.ino() == F::ROOT);
        let named = self.names.get(to_usize(ino.0)).copied().unwrap_or(0);
        // A directory has a link for itself. The root has another one in place of a parent.
        let own = u32::from(inode.is_dir()).saturating_add(u32::from(is_root));
        let (stored, is_named) = (inode.attr.nlink, named > 0 || is_root);
        let expected = if is_named { named.saturating_add(own) } else { 0 };
        match () {
            () if stored == 0 && named == 0 => {
                let text = format!("inode {ino} has no name; the next change frees it");
                self.found("nameless", Severity::Note, ("ino", ino.0), text);
            }
            () if stored != expected => {
                let text = format!("inode {ino}: link count is {stored}, should be {expected}");
                self.damage("link-count", ino, text);
            }
            () => {}
        }
    }

    fn bitmap(&mut self) -> Result<()> {
        for block in 0..self.op.geometry().size {
            let (stored, owned) =
                (self.op.is_used(block)?, self.seen.get(to_usize(block.into())) == Some(&true));
            self.report.blocks.0 = self.report.blocks.0.saturating_add(u64::from(owned));
            if stored != owned {
                let word = |used| if used { "in use" } else { "free" };
                let text = format!("block {block} is marked {}, but is {}", word(stored), word(owned));
                self.found("bitmap", Severity::Damage, ("block", block.into()), text);
            }
        }
        Ok(())
    }
}
