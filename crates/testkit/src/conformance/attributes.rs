//! Attributes and their times.

use obento_base::{FileFlags, FileKind, Mode, Timestamp};
use obento_driver::{FileSystem, Keeps, SetAttr, TimeChange};

use super::{attr, dir, file, has, has_directories, has_links, keeps, make, name, writable, write};

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

/// `set_attr`: "Changes attributes, all or none. Answers what they are now." "`None` leaves one as it is."
pub fn set_attr_changes_what_it_names_and_leaves_the_rest(fs: &dyn FileSystem) {
    let kinds = [("f", FileKind::Regular), ("d", FileKind::Directory), ("p", FileKind::Fifo)];
    for (text, kind) in kinds.into_iter().filter(|(_, kind)| has(fs, *kind)) {
        if !keeps(fs, Keeps::MODES | Keeps::OWNERS) {
            let ino = make(fs, fs.root(), text, kind);
            let other = SetAttr { uid: Some(70_000), ..LEAVE };
            let refused = writable(fs).set_attr(ino, &other).map(drop);
            assert!(keeps(fs, Keeps::OWNERS) || refused == Err(obento_base::Error::NotPermitted));
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
            let refused = writable(fs).set_attr(ino, &SetAttr { uid: Some(large), ..LEAVE }).map(drop);
            assert_eq!(refused, Err(obento_base::Error::OutOfRange));
        }
        assert_eq!((after.kind, after.size, after.nlink), (kind, before.size, before.nlink));
        assert_eq!(attr(fs, ino), after);
    }
}

/// "Of `dir`'s flags a file and a directory get `NO_DUMP` and `NO_ATIME`, where the format has them".
pub fn what_is_made_in_a_directory_gets_the_flags_that_it_hands_on(fs: &dyn FileSystem) {
    if !has_directories(fs) {
        return;
    }
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
}

/// "This moment, cut to the format's granularity."
pub fn times_are_kept_to_the_granularity(fs: &dyn FileSystem) {
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
    assert!(after.atime == kept_atime || !keeps(fs, Keeps::ATIME));
}

/// "Last change; for tools that restore a tree".
pub fn the_time_of_the_last_change_is_set_where_it_is_told(fs: &dyn FileSystem) {
    if !keeps(fs, Keeps::CTIME) {
        return;
    }
    let (ino, ctime) = (file(fs, fs.root(), "f"), Timestamp::new(1_700_000_000, 0));
    let stamped = SetAttr { ctime: Some(TimeChange::At(ctime)), ..LEAVE };
    assert_eq!(writable(fs).set_attr(ino, &stamped).expect("a time").ctime, ctime);
}

/// "The driver stamps `mtime` and `ctime`".
pub fn changes_of_data_and_of_attributes_are_stamped_apart(fs: &dyn FileSystem) {
    let old = Some(TimeChange::At(Timestamp::new(1, 0)));
    let age = |ino| {
        let change = SetAttr { atime: old, mtime: old, ctime: old, ..LEAVE };
        writable(fs).set_attr(ino, &change).expect("an old time");
    };
    let stamped = |ino| {
        let attr = attr(fs, ino);
        [attr.mtime, attr.ctime].map(|time| time.secs() != 1)
    };
    if !keeps(fs, Keeps::CTIME) || !has_links(fs) {
        return;
    }
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
}

/// "Grows with every change, if the format counts".
pub fn the_change_counter_grows_with_every_change(fs: &dyn FileSystem) {
    let ino = file(fs, fs.root(), "f");
    let mut last = attr(fs, ino).change;
    for n in 0..10_u16 {
        let change = SetAttr { mode: Some(Mode::new(n)), ..LEAVE };
        let after = writable(fs).set_attr(ino, &change).expect("a mode").change;
        assert!(after >= last, "it never goes back");
        last = after;
    }
}
