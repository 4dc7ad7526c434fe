//! Times that a type cannot store: the returned value of a change is the value on disk.

use obento_base::{FileKind, Name, Timestamp};
use obento_driver::{Access, SetAttr, StoredProperties, TimeChange};
use obento_testkit::recipes::EMPTY;

use super::image::{Image, node};

/// The limits of 32-bit numbers, signed and unsigned, the years of FAT and of HFS, and times far from all of them.
const SECONDS: [i64; 12] = [
    -3_000_000_000,
    -2_147_483_649,
    -2_082_844_801,
    -157_766_400,
    -1,
    0,
    315_532_800,
    2_147_483_647,
    2_147_483_648,
    4_294_967_295,
    4_294_967_296,
    20_000_000_000,
];

#[test]
fn the_returned_time_equals_the_stored_time() {
    let mut wrong = Vec::new();
    for recipe in EMPTY {
        let Some(image) = Image::new(recipe.name) else { continue };
        let fs = image.open(Access::ReadWrite);
        let (writable, limits) = (fs.writable().unwrap(), fs.limits());
        let mut answered = Vec::new();
        for (at, secs) in SECONDS.into_iter().enumerate() {
            let name = format!("f{at}");
            let name = Name::new(name.as_bytes()).unwrap();
            let ino = writable.create(fs.root(), name, &node(FileKind::Regular)).unwrap().ino;
            let time = Some(TimeChange::At(Timestamp::new(secs, 123_456_789)));
            let attr = writable.set_attr(ino, &SetAttr { atime: time, mtime: time, ..SetAttr::default() });
            let attr = attr.unwrap();
            answered.push((name.to_buf(), secs, attr.atime, attr.mtime));
            // All types store times from 1970 to 2038. In the first and the last second, a type may store whole seconds only
            // (fs/inode.c `timestamp_truncate`).
            let is_kept = limits.is_same_time(attr.mtime, Timestamp::new(secs, 123_456_789));
            assert!(
                is_kept || !(1..i32::MAX.into()).contains(&secs),
                "{}: {secs} is {:?}",
                recipe.name,
                attr.mtime
            );
        }
        writable.close().unwrap();
        drop(fs);
        let fs = image.open(Access::ReadOnly);
        for (name, secs, atime, mtime) in answered {
            let attr = fs.getattr(fs.lookup(fs.root(), &name).unwrap()).unwrap();
            let keeps_atime = limits.keeps.contains(StoredProperties::ATIME);
            let is_kept = limits.is_same_time(attr.mtime, mtime)
                && (!keeps_atime || limits.is_same_time(attr.atime, atime));
            if !is_kept {
                wrong.push(format!("{}: {secs}: {mtime:?}, {atime:?}, then {attr:?}", recipe.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
