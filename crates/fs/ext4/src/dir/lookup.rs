//! Finding one name in a directory: by the index if it has one and the index is whole, otherwise from front to back.
//!
//! Source: Linux fs/ext4/namei.c, `__ext4_find_entry`, `ext4_dx_find_entry`, `ext4_match`.

use core::ops::ControlFlow;

use alloc::vec::Vec;

use obento_base::{Error, Ino, Result};

use super::Shape;
use super::block::Store;
use super::fold::{Folder, same};
use super::hash::Hasher;
use super::index::Index;
use super::record::Records;

/// A name that is looked for.
pub(super) struct Search<'a> {
    shape: &'a Shape,
    name: &'a [u8],
    /// In a directory that ignores case: the name folded, if it can be.
    folded: Option<Vec<u8>>,
    folder: Folder,
}

impl<'a> Search<'a> {
    pub(super) fn new(shape: &'a Shape, name: &'a [u8]) -> Result<Self> {
        let mut folder = Folder::default();
        let mut folded = None;
        if let Some(bytes) = shape.fold.and_then(|_| folder.fold(name)) {
            let mut own = Vec::new();
            own.try_reserve_exact(bytes.len())?;
            own.extend_from_slice(bytes);
            folded = Some(own);
        }
        Ok(Self { shape, name, folded, folder })
    }

    /// Looks by the index. An index that is damaged, or may have been made with other foldings, is passed by.
    pub(super) fn indexed(&mut self, store: Store<'_>) -> Result<Ino> {
        match self.by_index(store) {
            Err(Error::NotFound) if self.shape.fold.is_none_or(|fold| !fold.scan) => Err(Error::NotFound),
            Err(Error::NotFound | Error::Corrupt(_) | Error::Unsupported(_) | Error::Device(_)) => {
                self.linear(store)
            }
            result => result,
        }
    }

    fn by_index(&mut self, store: Store<'_>) -> Result<Ino> {
        let index = Index::open(store)?;
        let hash = self.hash(&index.hasher);
        let mut path = index.path(Some(hash));
        path.descend()?;
        for _ in 0..self.shape.blocks {
            let Some(leaf) = path.leaf() else { break };
            let block = store.leaf(leaf.at)?;
            if let Some(found) = self.search(&store.records(leaf.at, &block))? {
                return Ok(found);
            }
            if !leaf.continues(hash) || !path.advance()? {
                break;
            }
        }
        Err(Error::NotFound)
    }

    fn hash(&self, hasher: &Hasher) -> u32 {
        hasher.hash(self.folded.as_deref().unwrap_or(self.name)).major
    }

    /// Looks through all blocks. What could not be read may have held the name: then its error, not `NotFound`.
    pub(super) fn linear(&mut self, store: Store<'_>) -> Result<Ino> {
        let mut answer = Err(Error::NotFound);
        let _ = store.scan(0, |at, block| {
            match block.and_then(|block| self.search(&store.records(at, block))) {
                Ok(None) => return ControlFlow::Continue(()),
                Ok(Some(found)) => answer = Ok(found),
                Err(error) => {
                    if answer == Err(Error::NotFound) {
                        answer = Err(error);
                    }
                    return ControlFlow::Continue(());
                }
            }
            ControlFlow::Break(())
        });
        answer
    }

    /// Looks through one run of records.
    pub(super) fn search(&mut self, run: &Records<'_>) -> Result<Option<Ino>> {
        for record in run.walk() {
            let record = record?;
            if record.inode != 0 && self.matches(record.name) {
                return run.inode(&record, self.shape.max_ino).map(Some);
            }
        }
        Ok(None)
    }

    fn matches(&mut self, name: &[u8]) -> bool {
        match self.shape.fold {
            Some(fold) => same(fold, self.name, self.folded.as_deref(), name, &mut self.folder),
            None => self.name == name,
        }
    }
}
