//! Plans by name: each kind of operation in difficult situations.

use obento_base::FileKind::{CharDevice, Directory, Fifo, Regular};
use obento_driver::{RenameFlags, Size, XattrMode};

use crate::plan::{Op, Plan, Space};

fn create(path: &str) -> Op {
    Op::Create(path.into(), Regular, 0o644)
}

fn mkdir(path: &str) -> Op {
    Op::Create(path.into(), Directory, 0o755)
}

fn write(path: &str, at: u64, len: usize) -> Op {
    Op::Write(path.into(), at, len)
}

fn unlink(path: &str) -> Op {
    Op::Unlink(path.into())
}

fn fsync(path: &str) -> Op {
    Op::Fsync(path.into())
}

fn rename(from: &str, to: &str, flags: RenameFlags) -> Op {
    Op::Rename(from.into(), to.into(), flags)
}

fn xattr(path: &str, name: &str, len: usize) -> Op {
    Op::SetXattr(path.into(), name.into(), len, XattrMode::Set)
}

fn space(path: &str, space: Space, start: u64, end: u64) -> Op {
    Op::Space(path.into(), space, start..end)
}

/// Creates files `f` (more than three blocks) and `g`, and directories `d` with `d/x`, and `e`, all durable.
fn setup() -> Vec<Op> {
    let mut ops = vec![create("f"), write("f", 0, 13_000), create("g"), write("g", 0, 700)];
    ops.extend([mkdir("d"), create("d/x"), write("d/x", 0, 5000), mkdir("e"), Op::Sync]);
    ops
}

/// Returns the plan that runs `operation`, syncs it and runs some further operations.
fn plan(name: &str, operation: Vec<Op>) -> Plan {
    let after = [Op::Sync, create("after"), write("after", 0, 3000)];
    let setup = setup();
    Plan { setup: setup.len(), ..Plan::new(name, setup.into_iter().chain(operation).chain(after)) }
}

/// Returns a plan for every kind of operation; those of `fallocate` only if the format `allocates`.
pub fn every_operation(allocates: bool) -> Vec<Plan> {
    let mut plans = vec![Plan::new("setup", setup())];
    plans.extend(names());
    plans.extend(renames());
    plans.extend(data());
    plans.extend(attributes());
    plans.extend(crowds());
    if allocates {
        plans.extend(spaces());
    }
    plans
}

/// Returns all plans, in a fixed order: those of each kind of operation, and those with files without a name.
pub fn all() -> Vec<Plan> {
    every_operation(true).into_iter().chain(nameless()).collect()
}

/// Returns the plans for a mount of the kernel module with `data=mode`. The guest and the judge of `cargo xtask kernel
/// cuts` use this list. With `data=journal`, the module does not support fallocate(2).
pub fn of_kernel(mode: &str) -> Vec<Plan> {
    let is_space = |op: &Op| matches!(op, Op::Space(..));
    let is_supported = |plan: &Plan| mode != "journal" || !plan.ops.iter().any(is_space);
    all().into_iter().filter(is_supported).collect()
}

/// Returns plans with files without a name, for formats that support them.
pub fn nameless() -> Vec<Plan> {
    let written = |len| vec![Op::Nameless, Op::WriteNameless(0, len)];
    let with = |len, more: Vec<Op>| written(len).into_iter().chain(more).collect();
    vec![
        plan("nameless-never-named", with(9000, vec![Op::Sync, create("n"), Op::Release])),
        plan("nameless-named", with(9000, vec![Op::Name("d/n".into()), fsync("d/n")])),
        plan("nameless-synced-and-named", with(300, vec![Op::Sync, Op::Name("n".into()), fsync("n")])),
        plan(
            "two-nameless",
            with(
                5000,
                vec![
                    Op::Nameless,
                    Op::WriteNameless(4096, 100),
                    Op::Sync,
                    Op::Name("n".into()),
                    unlink("n"),
                    Op::Sync,
                    Op::Name("m".into()),
                    fsync("m"),
                ],
            ),
        ),
        plan(
            "nameless-over-what-is-there",
            with(9000, vec![Op::Name("t".into()), fsync("t"), rename("t", "f", RenameFlags::empty())]),
        ),
    ]
}

fn names() -> Vec<Plan> {
    vec![
        plan("create", vec![create("n"), fsync("n"), create("d/n")]),
        plan("mkdir", vec![mkdir("n"), mkdir("n/m"), create("n/m/k"), fsync("n/m/k")]),
        plan("mknod", vec![Op::Create("p".into(), Fifo, 0o600), Op::Create("c".into(), CharDevice, 0o600)]),
        plan("symlink", vec![Op::Symlink("fast".into(), 20), Op::Symlink("slow".into(), 300)]),
        plan("unlink-symlink", vec![Op::Symlink("slow".into(), 300), Op::Sync, unlink("slow")]),
        plan(
            "link",
            vec![Op::Link("f".into(), "d/f2".into()), fsync("f"), Op::Link("g".into(), "g2".into())],
        ),
        plan("unlink", vec![unlink("f"), unlink("d/x")]),
        plan(
            "unlink-one-of-two",
            vec![Op::Link("f".into(), "f2".into()), Op::Sync, unlink("f"), fsync("f2")],
        ),
        plan(
            "unlink-while-open",
            vec![Op::Hold("f".into()), unlink("f"), Op::Sync, create("f"), Op::Release, write("f", 0, 9000)],
        ),
        plan(
            "two-orphans",
            vec![
                Op::Hold("f".into()),
                Op::Hold("d/x".into()),
                unlink("f"),
                unlink("d/x"),
                Op::Sync,
                write("g", 0, 100),
                Op::Release,
            ],
        ),
        plan(
            "remove-used-and-unused",
            vec![
                Op::Link("f".into(), "f2".into()),
                Op::Symlink("slow".into(), 300),
                Op::Hold("d/x".into()),
                Op::Sync,
                unlink("f"),
                unlink("d/x"),
                unlink("f2"),
                Op::Rmdir("d".into()),
                unlink("slow"),
                create("n"),
                write("n", 0, 9000),
                Op::Sync,
                Op::Release,
            ],
        ),
        plan("rmdir", vec![Op::Rmdir("e".into()), mkdir("e"), Op::Rmdir("e".into())]),
        plan("unlink-and-create-again", vec![unlink("f"), create("f"), write("f", 0, 2000), fsync("f")]),
    ]
}

fn renames() -> Vec<Plan> {
    let none = RenameFlags::empty();
    vec![
        plan("rename", vec![rename("f", "h", none), fsync("h"), rename("h", "f", RenameFlags::NO_REPLACE)]),
        plan("rename-over", vec![rename("f", "g", none)]),
        plan(
            "rename-over-an-open-file",
            vec![Op::Hold("g".into()), rename("f", "g", none), Op::Sync, Op::Release],
        ),
        plan(
            "replace-by-rename",
            vec![create("new"), write("new", 0, 6000), fsync("new"), rename("new", "f", none), fsync("f")],
        ),
        plan("rename-across", vec![rename("f", "d/f", none), rename("d/x", "x", none)]),
        plan("rename-a-directory", vec![rename("d", "e/d", none), fsync("e/d/x")]),
        plan("rename-over-a-directory", vec![rename("d", "e", none)]),
        // The file is renamed again before its move from another directory is durable; it is never in both directories.
        plan("rename-twice", vec![rename("d/x", "y", none), rename("y", "z", none), fsync("z")]),
        plan("rename-over-and-on", vec![rename("d/x", "f", none), rename("f", "h", none), fsync("h")]),
        plan(
            "exchange-and-on",
            vec![rename("f", "d/x", RenameFlags::EXCHANGE), rename("f", "h", none), fsync("h")],
        ),
        plan("exchange-files", vec![rename("f", "d/x", RenameFlags::EXCHANGE)]),
        plan("exchange-file-and-directory", vec![rename("d", "f", RenameFlags::EXCHANGE)]),
    ]
}

fn data() -> Vec<Plan> {
    let truncate = |path: &str, size| Op::Truncate(path.into(), size);
    let append = |path: &str, len| Op::Append(path.into(), len);
    vec![
        plan("write", vec![create("n"), write("n", 0, 20_000), fsync("n"), write("n", 3000, 9000)]),
        plan("write-sparse", vec![create("n"), write("n", 40_000, 5000), write("n", 9000, 10), fsync("n")]),
        plan("overwrite", vec![write("f", 1000, 10_000), fsync("f"), write("f", 0, 13_000)]),
        plan(
            "append",
            vec![append("f", 500), append("f", 5000), fsync("f"), append("f", 1), append("g", 9000)],
        ),
        // The files are not read in between, so that their data waits in memory while other changes become durable.
        plan(
            "appends-that-wait",
            vec![
                write("f", 13_000, 500),
                write("f", 13_500, 700),
                write("g", 700, 400),
                write("g", 1100, 9000),
                write("f", 14_200, 3000),
                create("n"),
                fsync("n"),
                write("f", 17_200, 800),
                rename("d/x", "d/y", RenameFlags::empty()),
                fsync("d"),
                fsync("f"),
                write("f", 18_000, 5000),
                write("f", 23_000, 100),
                write("g", 10_100, 200),
                mkdir("m"),
                fsync("m"),
            ],
        ),
        plan("truncate", vec![truncate("f", 5000), fsync("f"), truncate("f", 0), truncate("g", 100)]),
        plan("truncate-up", vec![truncate("f", 30_000), truncate("g", 100), truncate("g", 4000), fsync("g")]),
        plan(
            "truncate-and-append",
            vec![truncate("f", 5000), append("f", 3000), fsync("f"), truncate("f", 6000)],
        ),
        plan(
            "truncate-within-a-sector-and-write",
            vec![
                truncate("f", 5000),
                append("f", 70),
                write("f", 5200, 50),
                truncate("f", 5010),
                append("f", 900),
            ],
        ),
        plan(
            "freed-blocks-in-another-file",
            vec![unlink("f"), create("n"), write("n", 0, 30_000), create("m"), write("m", 0, 30_000)],
        ),
        plan(
            "many-extents",
            (0..12).map(|n| write("g", n * 9000, 600)).chain([fsync("g"), unlink("g")]).collect(),
        ),
    ]
}

fn attributes() -> Vec<Plan> {
    vec![
        plan("xattr", vec![xattr("f", "user.a", 20), xattr("d", "trusted.b", 30), fsync("f")]),
        plan("xattr-block", vec![xattr("f", "user.a", 500), fsync("f"), xattr("f", "user.a", 300)]),
        plan(
            "xattr-remove",
            vec![
                xattr("f", "user.a", 500),
                xattr("f", "user.b", 10),
                Op::Sync,
                Op::RemoveXattr("f".into(), "user.a".into()),
                fsync("f"),
                Op::RemoveXattr("f".into(), "user.b".into()),
            ],
        ),
        plan("unlink-with-xattrs", vec![xattr("f", "user.a", 500), Op::Sync, unlink("f")]),
        plan(
            "set-attr",
            vec![
                Op::Chmod("f".into(), 0o600),
                Op::Chown("g".into(), 70_000, 5),
                fsync("f"),
                Op::Utime("f".into(), 946_684_800),
                Op::Flags("f".into(), 0x40),
            ],
        ),
        plan(
            "flags-handed-on",
            vec![Op::Flags("d".into(), 0xc0), create("d/n"), mkdir("d/m"), create("d/m/k"), fsync("d/m/k")],
        ),
    ]
}

/// Returns plans with directories that grow and are removed, so that their blocks become data, for which revoke records
/// exist.
fn crowds() -> Vec<Plan> {
    let long = |n: u32| format!("d/{n:0>120}");
    let fill = |count| (0..count).map(move |n| create(&long(n)));
    let empty = |count| (0..count).map(move |n| unlink(&long(n)));
    let mut reuse: Vec<Op> = fill(30).chain([Op::Sync]).chain(empty(30)).collect();
    reuse.extend([unlink("d/x"), Op::Rmdir("d".into()), create("n"), write("n", 0, 60_000), fsync("n")]);
    let syncs = (0..24).flat_map(|n| {
        let path = format!("s{n}");
        [create(&path), write(&path, n * 500, 3000), fsync(&path)]
    });
    vec![
        plan("directory-grows", fill(40).chain([fsync("d")]).collect()),
        plan("directory-empties", fill(24).chain([Op::Sync]).chain(empty(24)).collect()),
        plan("directory-becomes-data", reuse),
        plan("many-syncs", syncs.collect()),
    ]
}

fn spaces() -> Vec<Plan> {
    const M: u64 = 1024;
    vec![
        plan(
            "allocate",
            vec![space("g", Space::Allocate(Size::Grow), 0, 20 * M), fsync("g"), write("g", 9000, 3000)],
        ),
        plan(
            "allocate-keep",
            vec![space("g", Space::Allocate(Size::Keep), 0, 30 * M), write("g", 700, 6000)],
        ),
        plan(
            "punch",
            vec![space("f", Space::Punch, 3000, 9500), fsync("f"), space("f", Space::Punch, 0, 13_000)],
        ),
        plan(
            "zero-range",
            vec![space("f", Space::Zero(Size::Keep), 1000, 9500), fsync("f"), write("f", 2000, 100)],
        ),
        // Blocks of 4 KiB that are only zeroed in part.
        plan(
            "zero-over-a-border-of-blocks",
            vec![
                space("f", Space::Zero(Size::Keep), 500, 8100),
                space("f", Space::Punch, 4700, 11_900),
                fsync("f"),
            ],
        ),
        plan("zero-range-grow", vec![space("g", Space::Zero(Size::Grow), 300, 20_000), fsync("g")]),
        plan(
            "append-over-space-past-the-end",
            vec![
                create("n"),
                space("n", Space::Zero(Size::Keep), 5918, 11_599),
                Op::Append("n".into(), 577),
                Op::Append("n".into(), 8099),
                fsync("n"),
            ],
        ),
        plan("collapse", vec![space("f", Space::Collapse, 4096, 8192), fsync("f")]),
        plan("insert", vec![space("f", Space::Insert, 4096, 12_288), fsync("f")]),
        plan(
            "write-into-a-zeroed-range",
            vec![
                space("f", Space::Zero(Size::Keep), 4096, 12_288),
                write("f", 5300, 300),
                write("f", 9000, 3000),
            ],
        ),
        plan("collapse-and-write", vec![space("f", Space::Collapse, 0, 4096), write("f", 100, 7000)]),
        plan("insert-and-write", vec![space("f", Space::Insert, 0, 4096), write("f", 100, 9000)]),
        plan(
            "collapse-and-append",
            vec![space("f", Space::Collapse, 4096, 8192), Op::Append("f".into(), 100), fsync("f")],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Run, StepClock};
    use obento_tmpfs::{Options, Tmpfs};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    #[test]
    fn every_plan_has_a_unique_name_and_runs_all_its_operations() {
        let plans = all();
        let names: BTreeSet<&str> = plans.iter().map(|plan| plan.name.as_str()).collect();
        assert_eq!(names.len(), plans.len());
        for plan in plans {
            let clock = Arc::new(StepClock::default());
            let fs = Arc::new(Tmpfs::new(Options::new(clock.clone())));
            let mut run = Run::new(fs, clock).unwrap();
            for op in &plan.ops {
                run.step(op, &mut |_| ()).unwrap();
                assert_eq!(run.last_answer(), Some(Ok(())), "{}: {op:?}", plan.name);
            }
        }
    }
}
