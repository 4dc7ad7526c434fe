//! mdtest: a tree of directories, and files that are created, looked up, listed and removed, phase by phase.
//!
//! Source: mdtest of the IOR project (`-z` depth, `-b` branches, `-I` items per directory, `-u` a tree per task). Each
//! thread is a task with a tree of its own.

use std::io;

use crate::Result;
use crate::files::{Files, OpenMode};
use crate::workload::{Measure, Phase, Settings, ThreadGroup, Workload, WorkloadContext};

const DEPTH: u32 = 2;
const BRANCHES: u64 = 4;
/// The number of items in each of the 1 + 4 + 16 directories.
const ITEMS: u64 = 1000;

/// The tree and its phases.
#[derive(Clone, Copy, Debug)]
pub struct MdTest {
    /// The number of tasks, each a thread.
    pub threads: usize,
}

type Step = fn(&dyn Files, &str, u64) -> io::Result<u64>;

const PHASES: [(&str, Step); 6] = [
    ("directory creation", |files, at, _| files.create_dir(at).map(|()| 1)),
    ("file creation", |files, at, items| {
        (0..items)
            .try_for_each(|item| files.open(&format!("{at}/file.{item}"), OpenMode::Create).map(drop))
            .map(|()| items)
    }),
    ("file stat", |files, at, items| {
        (0..items).try_for_each(|item| files.stat(&format!("{at}/file.{item}")).map(drop)).map(|()| items)
    }),
    ("directory read", |files, at, _| files.list(at)),
    ("file removal", |files, at, items| {
        (0..items).try_for_each(|item| files.remove_file(&format!("{at}/file.{item}"))).map(|()| items)
    }),
    ("directory removal", |files, at, _| files.remove_dir(at).map(|()| 1)),
];

impl Workload for MdTest {
    fn run(&self, context: &WorkloadContext) -> Result<Vec<Phase>> {
        let items = context.settings.scaled(ITEMS);
        let phase = |(name, step): (&str, Step)| {
            ThreadGroup::new(name, Measure::Rate, self.threads).run(context, |member| {
                let mut directories = tree(&format!("mdtest.{}", member.index));
                if name == "directory removal" {
                    directories.reverse();
                }
                for directory in &directories {
                    member.count(step(&*context.files, directory, items)?, 0);
                }
                Ok(())
            })
        };
        PHASES.into_iter().map(phase).collect()
    }

    fn needs(&self, settings: &Settings) -> u64 {
        settings.scaled(ITEMS) * 21 * self.threads as u64 * 1024
    }
}

/// Returns the directories of a tree, parents first.
fn tree(root: &str) -> Vec<String> {
    let mut all = vec![root.to_owned()];
    let mut level = 0..1;
    for _ in 0..DEPTH {
        let start = all.len();
        for at in level.clone() {
            let children: Vec<_> = (0..BRANCHES).map(|branch| format!("{}/dir.{branch}", all[at])).collect();
            all.extend(children);
        }
        level = start..all.len();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_a_root_and_four_branches_at_each_of_two_levels() {
        let tree = tree("t");
        assert_eq!(tree.len(), 1 + 4 + 16);
        assert_eq!((tree[4].as_str(), tree[20].as_str()), ("t/dir.3", "t/dir.3/dir.3"));
    }
}
