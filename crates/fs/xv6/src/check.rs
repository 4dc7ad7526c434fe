//! Checking a volume: every block has one owner, every name an inode, every count is right.
//!
//! It looks through the reading code, with the log replayed in memory, and mends nothing.
//! Invariant: it reads each inode and each block of numbers once, and remembers a number an inode and a byte a block.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use obento_base::wire::to_usize;
use obento_base::{Error, Feature, Ino, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Check, CheckObserver, CheckOptions, CheckReport, Finding, Mending, OpenOptions, Severity, ToField as _,
};

use crate::dir::{Entry, bucket};
use crate::inode::Inode;
use crate::map::{FILE_BLOCKS, number_in};
use crate::op::Op;
use crate::open::Xv6Driver;
use crate::raw::PER_TABLE;
use crate::volume::{Counters, ROOT, Volume};

impl Check for Xv6Driver {
    fn check(
        &self,
        device: Arc<dyn BlockDevice>,
        options: &CheckOptions,
        observer: &mut dyn CheckObserver,
    ) -> Result<CheckReport> {
        if options.mending != Mending::Nothing {
            return Err(Error::Unsupported(Feature::Named("mending an xv6 volume")));
        }
        let volume = Volume::open(device, &OpenOptions::new(Arc::clone(&options.clock)))?;
        let op = Op::new(&volume, Counters::default());
        let mut pass =
            Pass { op: &op, observer, seen: Vec::new(), names: Vec::new(), report: CheckReport::default() };
        pass.run()?;
        Ok(pass.report)
    }
}

/// What is known so far.
struct Pass<'a, 'v> {
    op: &'a Op<'v>,
    observer: &'a mut dyn CheckObserver,
    /// Blocks that an inode names.
    seen: Vec<bool>,
    /// Of each inode, how often it is named.
    names: Vec<u32>,
    report: CheckReport,
}

impl Pass<'_, '_> {
    fn run(&mut self) -> Result<()> {
        let sb = self.op.sb();
        self.seen.try_reserve_exact(to_usize(sb.size.into()))?;
        self.seen.resize(to_usize(sb.size.into()), false);
        self.names.try_reserve_exact(to_usize(sb.inodes.into()))?;
        self.names.resize(to_usize(sb.inodes.into()), 0);
        for at in 0..sb.data_start {
            self.claim(at);
        }
        let all = || (1..sb.inodes).map(|number| Ino(number.into()));
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
        self.report.label = sb.label().to_vec();
        self.report.checked = true;
        self.report.block_size = 4096;
        self.report.inodes.1 = sb.inodes.saturating_sub(1).into();
        self.report.blocks.1 = sb.size.into();
        Ok(())
    }

    fn found(&mut self, code: &'static str, severity: Severity, number: u64, text: String) {
        let fields = Vec::from([(if code == "bitmap" { "block" } else { "ino" }, number.to_field())]);
        if severity != Severity::Note {
            self.report.found = self.report.found.saturating_add(1);
        }
        self.observer.found(Finding { code, severity, fields, text, mended: false });
    }

    fn damage(&mut self, code: &'static str, ino: Ino, text: String) {
        self.found(code, Severity::Damage, ino.0, format!("inode {ino}: {text}"));
    }

    /// The inode, if it is in use and can be read.
    fn inode(&mut self, ino: Ino) -> Result<Option<Inode>> {
        match self.op.inode(ino) {
            Ok(inode) => Ok(Some(inode)),
            Err(Error::Stale) => Ok(None),
            Err(error @ Error::Corrupt(_)) => {
                self.damage("inode", ino, format!("{error}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Notes the owner of a block; `false` if it has one.
    fn claim(&mut self, block: u32) -> bool {
        let slot = self.seen.get_mut(to_usize(block.into()));
        slot.is_some_and(|seen| !core::mem::replace(seen, true))
    }

    fn blocks(&mut self, inode: &Inode) -> Result<()> {
        let [direct @ .., single, double] = inode.raw.addrs.map(|number| number.get());
        let mut count = 0;
        for block in direct {
            self.own(inode, block, &mut count);
        }
        self.table(inode, single, &mut count)?;
        if self.own(inode, double, &mut count) {
            for index in 0..PER_TABLE {
                let table = number_in(&self.op.get(double)?, index);
                self.table(inode, table, &mut count)?;
            }
        }
        if count != inode.raw.blocks.get() {
            let stored = inode.raw.blocks.get();
            self.damage("block-count", inode.ino, format!("counts {stored} blocks and has {count}"));
        }
        let end = inode.raw.size.get().div_ceil(4096);
        let mut past = end;
        while past < FILE_BLOCKS {
            match self.op.walk(inode, past) {
                Ok((None, reach)) => past = past.saturating_add(reach),
                Ok((Some(_), _)) => {
                    self.damage("size", inode.ino, format!("has block {past} past its size"));
                    break;
                }
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn table(&mut self, inode: &Inode, table: u32, count: &mut u32) -> Result<()> {
        if self.own(inode, table, count) {
            for index in 0..PER_TABLE {
                let block = number_in(&self.op.get(table)?, index);
                self.own(inode, block, count);
            }
        }
        Ok(())
    }

    /// Gives a block to an inode; `false` for a hole and for one that it cannot have.
    fn own(&mut self, inode: &Inode, block: u32, count: &mut u32) -> bool {
        if block == 0 {
            return false;
        }
        *count = count.saturating_add(1);
        let is_data = self.op.sb().is_data(block);
        let is_free = is_data && self.claim(block);
        if !is_data {
            self.damage("block-number", inode.ino, format!("names block {block}, which is no file's"));
        } else if !is_free {
            self.damage("block-twice", inode.ino, format!("names block {block}, which has an owner"));
        }
        is_free
    }

    fn directory(&mut self, dir: &Inode) -> Result<()> {
        let mut from = 0;
        loop {
            let at = match self.op.next_bucket(dir, from) {
                Ok(Some(at)) => at,
                Ok(None) => return Ok(()),
                // Told with its blocks.
                Err(Error::Corrupt(_)) => return Ok(()),
                Err(error) => return Err(error),
            };
            for entry in self.op.entries(dir, at)? {
                match entry {
                    Ok(entry) => self.entry(dir, &entry)?,
                    Err(error) => self.damage("entry", dir.ino, format!("{error}")),
                }
            }
            from = at.saturating_add(1);
        }
    }

    fn entry(&mut self, dir: &Inode, entry: &Entry) -> Result<()> {
        let hash = self.op.hash(&entry.name);
        let level = entry.at.saturating_add(1).ilog2();
        if bucket(level, hash) != entry.at {
            self.damage("bucket", dir.ino, format!("has {} in the wrong bucket", entry.name));
        }
        let Some(inode) = self.inode(entry.ino)? else {
            self.damage(
                "entry-inode",
                dir.ino,
                format!("{} names inode {}, which is free", entry.name, entry.ino),
            );
            return Ok(());
        };
        if inode.kind != entry.kind {
            self.damage("entry-kind", dir.ino, format!("{} has another kind than its inode", entry.name));
        }
        if inode.is_dir() {
            if u64::from(inode.raw.parent.get()) != dir.ino.0 || inode.ino == ROOT {
                self.damage(
                    "parent",
                    inode.ino,
                    format!("is named in directory {}, not in its parent", dir.ino),
                );
            }
            self.name(dir.ino);
        }
        self.name(inode.ino);
        Ok(())
    }

    fn name(&mut self, ino: Ino) {
        if let Some(count) = self.names.get_mut(to_usize(ino.0)) {
            *count = count.saturating_add(1);
        }
    }

    fn links(&mut self, inode: &Inode) {
        let named = self.names.get(to_usize(inode.ino.0)).copied().unwrap_or(0);
        // A directory has a link for itself, and the root one for being the root.
        let own = u32::from(inode.is_dir()).saturating_add(u32::from(inode.ino == ROOT));
        let (stored, is_named) = (inode.raw.nlink.get(), named > 0 || inode.ino == ROOT);
        let expected = if is_named { named.saturating_add(own) } else { 0 };
        match () {
            () if stored == 0 && named == 0 => {
                let text = format!("inode {} has no name and is freed by the next change", inode.ino);
                self.found("nameless", Severity::Note, inode.ino.0, text);
            }
            () if stored != expected => {
                self.damage("link-count", inode.ino, format!("counts {stored} links and has {expected}"));
            }
            () => {}
        }
    }

    fn bitmap(&mut self) -> Result<()> {
        for block in 0..self.op.sb().size {
            let (stored, owned) =
                (self.op.is_used(block)?, self.seen.get(to_usize(block.into())) == Some(&true));
            self.report.blocks.0 = self.report.blocks.0.saturating_add(u64::from(owned));
            if stored != owned {
                let word = |used| if used { "in use" } else { "free" };
                let text = format!("block {block} is {} in the bitmap, but {}", word(stored), word(owned));
                self.found("bitmap", Severity::Damage, block.into(), text);
            }
        }
        Ok(())
    }
}
