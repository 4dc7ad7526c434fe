//! Attributes and times.

use obento_base::{Error, FileFlags, FileKind, Mode, Timestamp};
use obento_driver::{FileSystem, NewNode, SetAttr, StoredProperties, TimeChange};

use super::{attr, dir, file, has, keeps, lookup, make, name, needs, new_node, writable, write};
use crate::outcome::{CTIME, DIRECTORIES, HARD_LINKS, Lacks, OWNERS, Outcome};

const LEAVE: SetAttr = SetAttr {
    mode: None,
    uid: None,
    gid: None,
    atime: None,
    mtime: None,
    ctime: None,
    btime: None,
    flags: None,
    project: None,
};

/// `set_attr` changes all given attributes or none, and returns the new attributes. `None` leaves an attribute
/// unchanged.
pub fn set_attr_changes_the_named_attributes_and_leaves_the_rest(fs: &dyn FileSystem) -> Outcome {
    let kinds = [("f", FileKind::Regular), ("d", FileKind::Directory), ("p", FileKind::Fifo)];
    for (text, kind) in kinds.into_iter().filter(|(_, kind)| has(fs, *kind)) {
        if !keeps(fs, StoredProperties::MODES | StoredProperties::OWNERS) {
            let ino = make(fs, fs.root(), text, kind);
            let other = SetAttr { uid: Some(70_000), ..LEAVE };
            let refused = writable(fs).set_attr(ino, &other).map(drop);
            assert!(keeps(fs, StoredProperties::OWNERS) || refused == Err(Error::NotPermitted));
            shows_what_is_stored(fs, ino);
            continue;
        }
        let ino = make(fs, fs.root(), text, kind);
        let before = attr(fs, ino);
        let set = |change| writable(fs).set_attr(ino, &change).expect("it fits the format");
        let after = set(SetAttr { mode: Some(Mode::new(0o4711)), ..LEAVE });
        assert_eq!((after.mode, after.uid, after.gid), (Mode::new(0o4711), before.uid, before.gid));
        let (uid, uid_max) = (70_000.min(fs.limits().uid_max), fs.limits().uid_max);
        let after = set(SetAttr { uid: Some(uid), gid: Some(5), ..LEAVE });
        assert_eq!((after.mode, after.uid, after.gid), (Mode::new(0o4711), uid, 5));
        if let Some(large) = uid_max.checked_add(1) {
            let change = SetAttr { mode: Some(Mode::new(0o600)), uid: Some(large), ..LEAVE };
            let refused = writable(fs).set_attr(ino, &change).map(drop);
            assert_eq!((refused, attr(fs, ino).mode), (Err(Error::OutOfRange), after.mode), "all or none");
        }
        if let Some(large) = fs.limits().gid_max.checked_add(1) {
            let refused = writable(fs).set_attr(ino, &SetAttr { gid: Some(large), ..LEAVE }).map(drop);
            assert_eq!(refused, Err(Error::OutOfRange));
        }
        assert_eq!((after.kind, after.size, after.nlink), (kind, before.size, before.nlink));
        assert_eq!(attr(fs, ino), after);
    }
    Ok(())
}

/// Tests that a driver which ignores attributes does not return them as if they were stored.
fn shows_what_is_stored(fs: &dyn FileSystem, ino: obento_base::Ino) {
    let ctime = Some(TimeChange::At(Timestamp::new(1_000_000_000, 0)));
    for change in [
        SetAttr { mode: Some(Mode::new(0o4711)), ctime, ..LEAVE },
        SetAttr { mode: Some(Mode::new(0o444)), flags: Some(FileFlags::NO_DUMP), ..LEAVE },
    ] {
        match writable(fs).set_attr(ino, &change) {
            Ok(after) => assert_eq!(after, attr(fs, ino), "{change:?}"),
            Err(error) => assert_eq!(error, Error::NotSupported, "{change:?}"),
        }
    }
}

/// A new file or directory inherits `NO_DUMP` and `NO_ATIME` from its directory, if the format stores them.
pub fn new_files_inherit_the_flags_of_their_directory(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let parent = dir(fs, fs.root(), "d");
    let handed_on = FileFlags::NO_DUMP | FileFlags::NO_ATIME;
    let flags = Some(attr(fs, parent).flags | handed_on);
    let kept = writable(fs).set_attr(parent, &SetAttr { flags, ..LEAVE }).expect("flags").flags & handed_on;
    for (text, kind) in [("f", FileKind::Regular), ("e", FileKind::Directory)] {
        let made = attr(fs, make(fs, parent, text, kind)).flags;
        assert_eq!(made & handed_on, kept, "{kind:?}");
        assert_eq!(
            attr(fs, make(fs, fs.root(), text, kind)).flags & handed_on,
            FileFlags::empty(),
            "{kind:?}"
        );
    }
    Ok(())
}

/// Times are truncated to the format's granularity.
pub fn times_are_rounded_down_to_the_granularity_of_the_format(fs: &dyn FileSystem) -> Outcome {
    let ino = file(fs, fs.root(), "f");
    let grain = i128::from(fs.limits().time_granularity.max(1));
    let at = |secs: i64, nanos: u32| {
        let all = i128::from(secs) * 1_000_000_000 + i128::from(nanos);
        let kept = all / grain * grain;
        let kept = Timestamp::new((kept / 1_000_000_000) as i64, (kept % 1_000_000_000) as u32);
        (Timestamp::new(secs, nanos), kept)
    };
    let (mtime, kept_mtime) = at(1_700_000_000, 123_456_789);
    let (atime, kept_atime) = at(1_000_000_001, 999_999_999);
    let change = SetAttr { atime: Some(TimeChange::At(atime)), mtime: Some(TimeChange::At(mtime)), ..LEAVE };
    let after = writable(fs).set_attr(ino, &change).expect("times of this century");
    assert_eq!(after.mtime, kept_mtime);
    assert!(after.atime == kept_atime || !keeps(fs, StoredProperties::ATIME));
    Ok(())
}

/// `ctime` can be set, for tools that restore a tree.
pub fn the_time_of_the_last_change_can_be_set_if_it_is_reported(fs: &dyn FileSystem) -> Outcome {
    needs(fs, CTIME)?;
    let (ino, ctime) = (file(fs, fs.root(), "f"), Timestamp::new(1_700_000_000, 0));
    let stamped = SetAttr { ctime: Some(TimeChange::At(ctime)), ..LEAVE };
    assert_eq!(writable(fs).set_attr(ino, &stamped).expect("a time").ctime, ctime);
    Ok(())
}

/// `btime` can be set, if the format stores it and allows changing it.
pub fn the_time_of_birth_is_reported_from_the_start_and_can_be_set_if_it_is_reported(
    fs: &dyn FileSystem,
) -> Outcome {
    let ino = file(fs, fs.root(), "f");
    let made = attr(fs, ino);
    let Some(born) = made.btime else { return Err(Lacks("no birth times")) };
    let before = Timestamp::new(1_400_000_000, 0);
    let set = |change: SetAttr| writable(fs).set_attr(ino, &change).expect("a time of this century");
    let after = set(SetAttr { btime: Some(TimeChange::At(before)), ..LEAVE });
    assert_eq!(after.mtime, made.mtime);
    if after.btime == Some(born) {
        return Err(Lacks("no birth times that can be set"));
    }
    write(fs, ino, 0, &vec![1; super::block(fs) as usize]).expect("space");
    set(SetAttr { mtime: Some(TimeChange::At(Timestamp::new(1_700_000_000, 0))), ..LEAVE });
    assert_eq!((after.btime, attr(fs, ino).btime), (Some(before), Some(before)), "no change moves it");
    Ok(())
}

/// `project`: any value except 0 is `NotSupported` if the format stores no projects.
pub fn a_project_is_stored_or_not_supported(fs: &dyn FileSystem) -> Outcome {
    let ino = file(fs, fs.root(), "f");
    let set = |project| {
        let change = SetAttr { mode: Some(Mode::new(0o444)), project: Some(project), ..LEAVE };
        writable(fs).set_attr(ino, &change)
    };
    let before = attr(fs, ino);
    let lacks = set(7).map(|after| assert_eq!((after.project, attr(fs, ino)), (7, after)));
    if lacks.is_err() {
        assert_eq!((lacks, attr(fs, ino)), (Err(Error::NotSupported), before), "all or none");
    }
    assert_eq!(set(0).expect("none").project, 0);
    lacks.map_err(|_| Lacks("no projects"))
}

/// Changes of data set `mtime` and `ctime`; changes of attributes set only `ctime`.
pub fn data_and_attribute_changes_set_different_times(fs: &dyn FileSystem) -> Outcome {
    needs(fs, CTIME)?;
    needs(fs, HARD_LINKS)?;
    let old = Some(TimeChange::At(Timestamp::new(1, 0)));
    let age = |ino| {
        let change = SetAttr { atime: old, mtime: old, ctime: old, ..LEAVE };
        writable(fs).set_attr(ino, &change).expect("an old time");
    };
    let stamped = |ino| {
        let attr = attr(fs, ino);
        [attr.mtime, attr.ctime].map(|time| time.secs() != 1)
    };
    let ino = file(fs, fs.root(), "f");
    let root = fs.root();
    age(ino);
    write(fs, ino, 0, &vec![1; super::block(fs) as usize]).expect("space");
    assert_eq!(stamped(ino), [true, true], "written");
    age(ino);
    super::truncate(fs, ino, 1).expect("smaller");
    assert_eq!(stamped(ino), [true, true], "truncated");
    age(ino);
    writable(fs).set_attr(ino, &SetAttr { mode: Some(Mode::new(0o600)), ..LEAVE }).expect("a mode");
    assert_eq!(stamped(ino), [false, true], "its mode changed");
    for change in ["link", "unlink"] {
        age(ino);
        age(root);
        match change {
            "link" => drop(writable(fs).link(ino, root, name("g")).expect("another name")),
            _ => writable(fs).unlink(root, name("g")).expect("a name"),
        }
        assert_eq!((stamped(ino), stamped(root)), ([false, true], [true, true]), "{change}");
    }
    assert_eq!(attr(fs, ino).atime, Timestamp::new(1, 0), "the driver leaves atime to vfs");
    Ok(())
}

/// The change counter grows with every change if the format has one; otherwise it follows `ctime`.
pub fn the_change_counter_grows_with_every_change_or_with_the_times(fs: &dyn FileSystem) -> Outcome {
    let ino = file(fs, fs.root(), "f");
    let set = |change: SetAttr| writable(fs).set_attr(ino, &change).expect("it fits the format");
    let times = |secs| {
        let at = Some(TimeChange::At(Timestamp::new(secs, 0)));
        let ctime = at.filter(|_| keeps(fs, StoredProperties::CTIME));
        SetAttr { mtime: at, ctime, ..LEAVE }
    };
    let first = set(times(1_600_000_000));
    let mut last = first.change;
    let mut counted = true;
    for n in 0..10_u16 {
        let after = set(SetAttr { mode: Some(Mode::new(0o600 | n)), ..LEAVE }).change;
        assert!(after >= last, "the change counter never decreases");
        counted &= after > last;
        last = after;
    }
    write(fs, ino, 0, &vec![1; super::block(fs) as usize]).expect("space");
    let written = attr(fs, ino).change;
    assert!(if counted { written > last } else { written >= last }, "written");
    if !counted {
        let later = set(times(1_600_100_000));
        if later.ctime.secs() != 1_600_100_000 {
            return Err(Lacks("no change counter, and no change time that can be set"));
        }
        assert!(later.change > first.change, "the change counter does not change");
        assert_eq!(set(times(1_600_100_000)).change, later.change);
    }
    Ok(())
}

/// A time outside the range of the format is `OutOfRange`, or becomes the nearest time in the range.
pub fn a_time_that_the_format_cannot_store_fails_with_out_of_range_or_becomes_the_nearest(
    fs: &dyn FileSystem,
) -> Outcome {
    let ino = file(fs, fs.root(), "f");
    let mut lacking = 0;
    for far in [[-(1 << 60), -(1 << 40)], [1 << 60, 1 << 40]] {
        let found = far.map(|secs| {
            let before = attr(fs, ino);
            let mtime = Some(TimeChange::At(Timestamp::new(secs, 0)));
            let change = SetAttr { mode: Some(Mode::new(0o444)), mtime, ..LEAVE };
            let set = writable(fs).set_attr(ino, &change);
            let kept = set.as_ref().is_ok_and(|after| after.mtime.secs() == secs);
            lacking += usize::from(!kept);
            if set.is_err() {
                assert_eq!(set, Err(Error::OutOfRange), "{secs}");
                assert_eq!(attr(fs, ino), before, "all or none");
            }
            set.ok().filter(|_| !kept).map(|after| after.mtime)
        });
        // The nearest time to both is the first or the last one of the format.
        if let [Some(further), Some(less_far)] = found {
            assert_eq!(further, less_far);
        }
    }
    if lacking == 0 { Err(Lacks("no time out of range")) } else { Ok(()) }
}

/// `create`: `OutOfRange` for an owner that the format cannot store.
pub fn an_owner_that_the_format_cannot_store_is_out_of_range_at_create(fs: &dyn FileSystem) -> Outcome {
    needs(fs, OWNERS)?;
    let limits = fs.limits();
    let node = new_node(fs, FileKind::Regular);
    let large = [
        limits.uid_max.checked_add(1).map(|uid| NewNode { uid, ..node }),
        limits.gid_max.checked_add(1).map(|gid| NewNode { gid, ..node }),
    ];
    if large.iter().all(Option::is_none) {
        return Err(Lacks("no owner out of range"));
    }
    let before = fs.statfs().expect("use").free_inodes;
    for node in large.into_iter().flatten() {
        let made = writable(fs).create(fs.root(), name("f"), &node).map(drop);
        assert_eq!(made, Err(Error::OutOfRange));
        assert_eq!(lookup(fs, fs.root(), "f"), Err(Error::NotFound));
        // An existing name is reported first.
        let there = file(fs, fs.root(), "g");
        assert_eq!(writable(fs).create(fs.root(), name("g"), &node).map(drop), Err(Error::Exists));
        writable(fs).unlink(fs.root(), name("g")).expect("a name");
        fs.forget(there);
    }
    assert_eq!(fs.statfs().expect("use").free_inodes, before);
    Ok(())
}
