//! Listings of directories that change during the listing.

use std::collections::HashMap;

use obento_base::Name;
use obento_driver::{Cookie, FileSystem};

use super::{attr, dir, file, list, list_from, name, names_in, needs, new_node, writable};
use crate::outcome::{DIRECTORIES, NAMES, Outcome};

/// A number of entries that takes several blocks in any format.
const MANY: usize = 400;

fn filled(fs: &dyn FileSystem) -> obento_base::Ino {
    let sub = dir(fs, fs.root(), "many");
    let node = new_node(fs, obento_base::FileKind::Regular);
    let first = writable(fs).create(sub, name("keep 0"), &node).expect("space").ino;
    for n in 1..MANY {
        name_again(fs, first, sub, name(&format!("keep {n}")));
    }
    sub
}

/// Creates another name for `ino`, or for a new file if the format's check counts no more links.
fn name_again(fs: &dyn FileSystem, ino: obento_base::Ino, dir: obento_base::Ino, name: &Name) {
    if attr(fs, ino).nlink < fs.limits().link_max.min(200) {
        writable(fs).link(ino, dir, name).expect("space");
    } else {
        writable(fs).create(dir, name, &new_node(fs, obento_base::FileKind::Regular)).expect("space");
    }
}

/// Lists in steps of 7 entries with calls of `meanwhile` in between. Returns how often each name was listed.
fn list_while(
    fs: &dyn FileSystem,
    dir: obento_base::Ino,
    mut meanwhile: impl FnMut(usize),
) -> HashMap<Vec<u8>, u32> {
    let mut counts = HashMap::new();
    let mut from = Cookie::START;
    for step in 0.. {
        let part = list_from(fs, dir, from, 7);
        let Some(last) = part.last() else { break };
        from = last.next;
        part.into_iter().for_each(|entry| *counts.entry(entry.name).or_default() += 1);
        meanwhile(step);
    }
    counts
}

/// An entry that exists during the whole listing is listed exactly once.
pub fn an_entry_that_exists_throughout_is_listed_exactly_once(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let sub = filled(fs);
    let passing = file(fs, fs.root(), "passing");
    let counts = list_while(fs, sub, |step| {
        let text = format!("passing {step}");
        if step < 100 {
            name_again(fs, passing, sub, name(&text));
        }
        if step % 2 == 1 && step < 100 {
            writable(fs).unlink(sub, name(&text)).expect("it was just made");
        }
    });
    let kept = counts.iter().filter(|(name, _)| name.starts_with(b"keep"));
    assert_eq!(kept.clone().count(), MANY);
    assert!(kept.into_iter().all(|(_, &count)| count == 1));
    Ok(())
}

/// An entry that is created or removed during the listing is listed at most once.
pub fn an_entry_that_is_created_or_removed_is_listed_at_most_once(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let sub = filled(fs);
    let counts = list_while(fs, sub, |step| {
        let gone = format!("keep {}", (step * 13) % MANY);
        let _ = writable(fs).unlink(sub, name(&gone));
    });
    assert!(counts.values().all(|&count| count == 1));
    Ok(())
}

/// A cookie stays valid after other entries were created and removed.
pub fn a_cookie_is_valid_after_its_entry_and_its_neighbours_are_removed(fs: &dyn FileSystem) -> Outcome {
    needs(fs, DIRECTORIES)?;
    let sub = filled(fs);
    let listed = list(fs, sub);
    let (before, after) = listed.split_at(MANY / 2);
    for entry in before {
        writable(fs).unlink(sub, Name::new(&entry.name).expect("a name")).expect("it exists");
    }
    let from = before.last().expect("half of many").next;
    let names: Vec<_> = list_from(fs, sub, from, usize::MAX).into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, after.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>());
    Ok(())
}

/// A name may contain all bytes except `/` and NUL, up to `name_max` bytes.
pub fn names_with_arbitrary_bytes_are_preserved(fs: &dyn FileSystem) -> Outcome {
    needs(fs, NAMES)?;
    needs(fs, DIRECTORIES)?;
    let max = fs.limits().name_max as usize;
    let mut names: Vec<Vec<u8>> =
        (1..=255_u8).filter(|&b| b != b'/' && b != b'.').map(|b| vec![b, b'!']).collect();
    names.extend([vec![b'x'; max], b"...".to_vec(), b" ".to_vec(), "ångström".as_bytes().to_vec()]);
    let sub = dir(fs, fs.root(), "d");
    let plain = file(fs, fs.root(), "f");
    for bytes in &names {
        name_again(fs, plain, sub, Name::new(bytes).expect("a name"));
    }
    names.sort();
    assert_eq!(names_in(fs, sub), names);
    Ok(())
}
