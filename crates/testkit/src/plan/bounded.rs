//! Every short sequence of operations on a few files, with every placement of syncs.
//!
//! Source of the idea: "Finding Crash-Consistency Bugs with Bounded Black-Box Crash Testing" (ACE; Mohan et al., OSDI
//! 2018). Most crash bugs require no more than two or three operations on a new volume, and a sync at the right place.
//! A plan is a function of its number, so that its name identifies it.

use std::collections::BTreeMap;

use obento_base::FileKind::{self, Directory, Fifo, Regular, Symlink};
use obento_driver::{RenameFlags, Size, XattrMode};

use crate::mutants::Random;
use crate::plan::{Op, Plan, Space};

/// The features of a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The number of operations that are not syncs: up to 3.
    pub len: u32,
    /// Space can be allocated and freed (`fallocate`).
    pub space: bool,
    /// Hard and symbolic links, and pipes.
    pub links: bool,
    /// Extended attributes.
    pub xattrs: bool,
}

/// The sync after an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Persist {
    Nothing,
    File,
    Parent,
    /// The source directory of a rename, or the existing name of a link.
    Other,
    All,
}

const PERSISTS: [Persist; 5] =
    [Persist::Nothing, Persist::File, Persist::Parent, Persist::Other, Persist::All];

impl Bounds {
    /// Returns the number of plan numbers; some have no plan.
    pub fn count(&self) -> u64 {
        (self.operations().len() as u64 * PERSISTS.len() as u64).pow(self.len)
    }

    /// Returns the plan with a number; `None` if an operation of it has no effect.
    pub fn plan(&self, number: u64) -> Option<Plan> {
        let operations = self.operations();
        let (mut names, mut ops) = (Names::new(), setup());
        let setup = ops.len();
        let mut rest = number;
        for _ in 0..self.len {
            let op = operations.get((rest % operations.len() as u64) as usize)?;
            rest /= operations.len() as u64;
            let persist = PERSISTS[(rest % PERSISTS.len() as u64) as usize];
            rest /= PERSISTS.len() as u64;
            let path = names.act(op)?;
            ops.push(op.clone());
            ops.extend(names.persist(persist, op, &path)?);
        }
        let name = format!("bounded-{}-{number}", self.len);
        (rest == 0).then(|| Plan { setup, ..Plan::new(name, ops) })
    }

    /// Returns all plans.
    pub fn all(self) -> impl Iterator<Item = Plan> {
        (0..self.count()).filter_map(move |number| self.plan(number))
    }

    /// Returns all plans of one operation, and one in 199 of those of two.
    pub fn sample(self) -> Vec<Plan> {
        let [one, two] = [1, 2].map(|len| Self { len, ..self });
        one.all().chain(two.all().step_by(199)).collect()
    }

    /// Returns the plan with a name from [`Self::plan`].
    pub fn named(&self, name: &str) -> Option<Plan> {
        let (len, number) = name.strip_prefix("bounded-")?.split_once('-')?;
        Self { len: len.parse().ok().filter(|len| (1..=3).contains(len))?, ..*self }
            .plan(number.parse().ok()?)
    }

    /// Returns a random plan.
    pub fn draw(&self, random: &mut Random) -> Plan {
        loop {
            if let Some(plan) = self.plan(random.number() % self.count()) {
                return plan;
            }
        }
    }

    fn operations(&self) -> Vec<Op> {
        let mut ops = names();
        ops.extend(data());
        if self.space {
            ops.extend(space());
        }
        if self.links {
            ops.extend(links());
        }
        if self.xattrs {
            let set = |path: &str, len| Op::SetXattr(path.into(), "user.a".into(), len, XattrMode::Set);
            ops.extend([set("foo", 20), set("A", 300), Op::RemoveXattr("foo".into(), "user.a".into())]);
        }
        ops
    }
}

/// Creates files `foo` and `A/foo` with data, and an empty directory `B`, all durable.
fn setup() -> Vec<Op> {
    let create = |path: &str, kind| Op::Create(path.into(), kind, 0o755);
    let mut ops = vec![create("foo", Regular), create("A", Directory), create("A/foo", Regular)];
    ops.extend([Op::Write("foo".into(), 0, 5000), Op::Write("A/foo".into(), 0, 9000)]);
    ops.extend([create("B", Directory), Op::Sync]);
    ops
}

fn names() -> Vec<Op> {
    let create = |path: &str, kind| Op::Create(path.into(), kind, 0o700);
    let rename = |from: &str, to: &str| Op::Rename(from.into(), to.into(), RenameFlags::empty());
    let mut ops = vec![create("bar", Regular), create("A/bar", Regular), create("B/foo", Regular)];
    ops.extend([create("C", Directory), create("A/C", Directory)]);
    ops.extend(["foo", "A/foo", "bar", "A/bar"].map(|path| Op::Unlink(path.into())));
    ops.extend(["A", "B", "C"].map(|path| Op::Rmdir(path.into())));
    ops.extend([rename("foo", "bar"), rename("foo", "A/foo"), rename("A/foo", "foo")]);
    ops.extend([rename("A/foo", "A/bar"), rename("A/foo", "B/foo"), rename("bar", "foo")]);
    ops.extend([rename("A", "B"), rename("A", "C"), rename("B", "A/C")]);
    ops.push(Op::Rename("foo".into(), "A/foo".into(), RenameFlags::EXCHANGE));
    ops
}

fn data() -> Vec<Op> {
    let write = |path: &str, at, len| Op::Write(path.into(), at, len);
    let cut = |path: &str, size| Op::Truncate(path.into(), size);
    let mut ops = vec![write("foo", 0, 300), write("foo", 4000, 3000), write("foo", 12_288, 4096)];
    ops.extend([write("A/foo", 0, 9000), write("bar", 0, 5000), write("A/bar", 0, 100)]);
    ops.extend([Op::Append("foo".into(), 700), Op::Append("A/foo".into(), 5000)]);
    ops.extend([cut("foo", 0), cut("foo", 3000), cut("foo", 20_000), cut("A/foo", 4096)]);
    ops.push(Op::Chmod("foo".into(), 0o400));
    ops
}

fn space() -> Vec<Op> {
    let space = |space, range| Op::Space("foo".into(), space, range);
    vec![
        space(Space::Allocate(Size::Keep), 4096..16_384),
        space(Space::Allocate(Size::Grow), 0..9000),
        space(Space::Zero(Size::Keep), 1000..4500),
        space(Space::Punch, 0..4096),
    ]
}

fn links() -> Vec<Op> {
    let link = |from: &str, to: &str| Op::Link(from.into(), to.into());
    let mut ops = vec![link("foo", "bar"), link("foo", "A/bar"), link("A/foo", "B/foo")];
    ops.extend([Op::Symlink("A/bar".into(), 100), Op::Create("bar".into(), Fifo, 0o600)]);
    ops
}

/// The existing names, and their kinds.
struct Names(BTreeMap<String, FileKind>);

impl Names {
    fn new() -> Self {
        let names = [("foo", Regular), ("A", Directory), ("A/foo", Regular), ("B", Directory)];
        Self(names.map(|(name, kind)| (name.to_owned(), kind)).into())
    }

    /// Applies `op` to the names, and returns its path; `None` if the operation would fail.
    fn act(&mut self, op: &Op) -> Option<String> {
        match op {
            Op::Create(path, kind, _) => self.add(path, *kind),
            Op::Symlink(path, _) => self.add(path, Symlink),
            Op::Link(from, to) => match self.kind(from)? {
                Directory => None,
                kind => self.add(to, kind),
            },
            Op::Unlink(path) => {
                (self.kind(path)? != Directory).then(|| self.0.remove(path))?;
                Some(path.clone())
            }
            Op::Rmdir(path) => {
                self.empty_directory(path)?;
                self.0.remove(path);
                Some(path.clone())
            }
            Op::Rename(from, to, flags) => self.rename(from, to, flags.contains(RenameFlags::EXCHANGE)),
            Op::Write(path, ..) | Op::Append(path, _) | Op::Truncate(path, _) | Op::Space(path, ..) => {
                (self.kind(path)? == Regular).then(|| path.clone())
            }
            Op::SetXattr(path, ..) | Op::RemoveXattr(path, _) | Op::Chmod(path, _) => {
                matches!(self.kind(path)?, Regular | Directory).then(|| path.clone())
            }
            _ => None,
        }
    }

    fn rename(&mut self, from: &str, to: &str, exchange: bool) -> Option<String> {
        let kind = self.kind(from)?;
        match self.kind(to) {
            // Directories are not exchanged.
            Some(other) if exchange => (kind != Directory && other != Directory).then_some(())?,
            Some(Directory) if kind == Directory => self.empty_directory(to)?,
            Some(other) => (kind != Directory && other != Directory).then_some(())?,
            None if exchange => return None,
            None => self.parent_is_there(to)?,
        }
        if exchange {
            let other = self.kind(to)?;
            self.0.insert(from.to_owned(), other);
        } else {
            let below = format!("{from}/");
            let inner: Vec<String> = self.0.keys().filter(|path| path.starts_with(&below)).cloned().collect();
            for path in inner {
                let kind = self.0.remove(&path)?;
                self.0.insert(format!("{to}/{}", &path[below.len()..]), kind);
            }
            self.0.remove(from);
        }
        self.0.insert(to.to_owned(), kind);
        Some(to.to_owned())
    }

    fn kind(&self, path: &str) -> Option<FileKind> {
        self.0.get(path).copied()
    }

    fn add(&mut self, path: &str, kind: FileKind) -> Option<String> {
        self.parent_is_there(path)?;
        self.0.insert(path.to_owned(), kind).is_none().then(|| path.to_owned())
    }

    fn parent_is_there(&self, path: &str) -> Option<()> {
        let Some((parent, _)) = path.rsplit_once('/') else { return Some(()) };
        (self.kind(parent)? == Directory).then_some(())
    }

    fn empty_directory(&self, path: &str) -> Option<()> {
        let below = format!("{path}/");
        let is_empty = !self.0.keys().any(|other| other.starts_with(&below));
        (self.kind(path)? == Directory && is_empty).then_some(())
    }

    /// Returns the sync for `op` on `path`; `None` if the file does not exist or cannot be synced, or if another
    /// placement is the same.
    fn persist(&self, persist: Persist, op: &Op, path: &str) -> Option<Option<Op>> {
        Some(match persist {
            Persist::Nothing => None,
            Persist::File => {
                matches!(self.kind(path)?, Regular | Directory).then_some(())?;
                Some(Op::Fsync(path.to_owned()))
            }
            Persist::Parent => Some(Op::Fsync(parent(path).to_owned())),
            Persist::Other => match op {
                Op::Rename(from, to, _) if parent(from) != parent(to) => {
                    Some(Op::Fsync(parent(from).to_owned()))
                }
                Op::Link(from, _) => {
                    (self.kind(from)? == Regular).then_some(())?;
                    Some(Op::Fsync(from.clone()))
                }
                _ => return None,
            },
            Persist::All => Some(Op::Sync),
        })
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or(".", |(parent, _)| parent)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use obento_tmpfs::{Options, Tmpfs};

    use super::*;
    use crate::model::{Run, StepClock};

    const ALL: Bounds = Bounds { len: 2, space: true, links: true, xattrs: true };

    #[test]
    fn every_plan_runs_all_its_operations() {
        // An attribute may be removed whether or not it exists.
        for plan in ALL.all().step_by(37).chain(Bounds { len: 1, ..ALL }.all()) {
            let clock = Arc::new(StepClock::default());
            let fs = Arc::new(Tmpfs::new(Options::new(clock.clone())));
            let mut run = Run::new(fs, clock).unwrap();
            for op in &plan.ops {
                run.step(op, &mut |_| ()).unwrap();
                let is_removal = matches!(op, Op::RemoveXattr(..));
                assert!(is_removal || run.last_answer() == Some(Ok(())), "{plan}{op:?}");
            }
        }
    }

    #[test]
    fn a_name_reproduces_its_plan_and_the_number_of_plans_is_as_documented() {
        let counts = [1, 2].map(|len| Bounds { len, ..ALL }.all().count());
        assert_eq!(counts, [163, 23_771]);
        let plan = Bounds { len: 3, ..ALL }.draw(&mut Random::new(1));
        assert_eq!(ALL.named(&plan.name), Some(plan));
        assert_eq!(ALL.named("bounded-4-1"), None);
    }
}
