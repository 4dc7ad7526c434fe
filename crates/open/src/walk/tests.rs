use super::*;
use crate::toy::{Toy, dir, text, toy};
use obento_base::Corrupt;

/// Paths in the order in which a walk meets them: `+` before directories, `-` when they are left, `!` for damage.
fn met(walk: Walk) -> Vec<String> {
    walk.map(|item| match item {
        Ok(entry) => {
            let sign = match entry.step {
                Step::Enter => "+",
                Step::Leave => "-",
                Step::File => "",
            };
            assert_eq!(entry.depth, entry.path.split(|&b| b == b'/').filter(|part| !part.is_empty()).count());
            format!("{sign}{}", String::from_utf8(entry.path).unwrap())
        }
        Err(damage) => format!("!{}", String::from_utf8(damage.path).unwrap()),
    })
    .collect()
}

#[test]
fn entries_come_by_name_between_entering_and_leaving_their_directory() {
    let volume = toy([
        (2, dir(&[("z", 3), ("a", 4), ("m", 5)])),
        (3, text("")),
        (4, dir(&[("y", 3), ("x", 6)])),
        (5, Toy::Link("a")),
        (6, dir(&[])),
    ]);
    let order = ["+", "+a", "+a/x", "-a/x", "a/y", "-a", "m", "z", "-"];
    assert_eq!(met(Walk::new(volume.root())), order);
    let order = ["+", "z", "+a", "a/y", "+a/x", "-a/x", "-a", "m", "-"];
    assert_eq!(met(Walk::new(volume.root()).order(Order::Directory)), order);
    assert_eq!(met(Walk::new(volume.root()).max_depth(1)), ["+", "+a", "-a", "m", "z", "-"]);
    assert_eq!(met(Walk::new(volume.root()).max_depth(0)), ["+", "-"]);
    assert_eq!(met(Walk::new(volume.vfs().node(Ino(3)).unwrap())), [""]);
}

#[test]
fn a_directory_inside_itself_is_reported_and_not_entered() {
    let volume =
        toy([(2, dir(&[("a", 3)])), (3, dir(&[("again", 3), ("b", 4), ("top", 2)])), (4, dir(&[("up", 3)]))]);
    let order = ["+", "+a", "!a/again", "+a/b", "!a/b/up", "-a/b", "!a/top", "-a", "-"];
    assert_eq!(met(Walk::new(volume.root())), order);
}

#[test]
fn directories_with_two_names_each_are_walked_once() {
    // 2^60 paths lead to the last one.
    let directories = (2..62).map(|ino| (ino, dir(&[("a", ino + 1), ("b", ino + 1)])));
    let volume = toy(directories.chain([(62, dir(&[]))]));
    let found = met(Walk::new(volume.root()));
    assert_eq!(found.iter().filter(|line| line.starts_with('+')).count(), 61);
    assert_eq!(found.iter().filter(|line| line.starts_with('!')).count(), 60);
}

#[test]
fn damage_in_a_directory_or_an_inode_leaves_the_rest() {
    let damage = Corrupt::DirectoryHole { dir: Ino(2), at: 1 };
    let entries = vec![Ok(("b", 3)), Err(damage.into()), Ok(("a", 99)), Ok(("c", 3))];
    let volume = toy([(2, Toy::Dir(entries)), (3, text(""))]);
    let mut found = met(Walk::new(volume.root()));
    found.sort();
    assert_eq!(found, ["!", "!a", "+", "-", "b", "c"]);
}

#[test]
fn a_directory_that_was_pruned_is_left_without_its_entries() {
    let volume = toy([(2, dir(&[("a", 3), ("b", 4)])), (3, dir(&[("x", 4)])), (4, text(""))]);
    let mut walk = Walk::new(volume.root());
    assert_eq!(walk.next().unwrap().unwrap().path, b"");
    assert_eq!(walk.next().unwrap().unwrap().path, b"a");
    walk.prune();
    assert_eq!(met(walk), ["-a", "b", "-"]);
}

#[test]
fn links_are_followed_when_asked_for_and_circles_still_end() {
    let volume = toy([
        (2, dir(&[("file", 3), ("tree", 4), ("up", 5), ("gone", 6), ("here", 7)])),
        (3, text("x")),
        (4, dir(&[("f", 3)])),
        (5, Toy::Link("/")),
        (6, Toy::Link("nowhere")),
        (7, Toy::Link("tree")),
    ]);
    let walk = Walk::new(volume.root()).symlinks(Symlinks::Follow);
    let order = ["+", "file", "gone", "+here", "here/f", "-here", "+tree", "tree/f", "-tree", "!up", "-"];
    assert_eq!(met(walk), order);
}

#[test]
fn many_entries_come_once_each_in_portions() {
    let names: Vec<&'static str> = (0..3000).map(|n| &*format!("{n:04}").leak()).collect();
    let entries: Vec<(&'static str, u64)> = names.iter().map(|name| (*name, 3)).collect();
    let volume = toy([(2, dir(&entries)), (3, text(""))]);
    for order in [Order::Name, Order::Directory] {
        let found = met(Walk::new(volume.root()).order(order));
        assert_eq!(found[1..3001], names);
    }
}

#[test]
fn a_list_too_long_to_sort_at_once_is_returned_in_sorted_portions() {
    let name = |n: usize| &*format!("{:04}{}", (n * 7919) % 10_000, "x".repeat(200)).leak();
    let entries: Vec<(&'static str, u64)> = (0..10_000).map(|n| (name(n), 3)).collect();
    let volume = toy([(2, dir(&entries)), (3, text(""))]);
    let mut frame = Walk::new(volume.root());
    frame.next();
    frame.enter();
    frame.top().read(Order::Name, 1 << 20);
    let read = frame.top().entries.len();
    assert!((3000..8000).contains(&read), "{read}");
    assert!(frame.top().entries.is_sorted_by(|a, b| a.name > b.name) && !frame.top().finished);
    assert_eq!(met(frame).len(), 10_000 + 1);
}

#[test]
fn a_very_deep_tree_takes_no_stack() {
    let nodes = (2..5002).map(|ino| (ino, dir(&[("d", ino + 1)]))).chain([(5002, dir(&[]))]);
    let volume = toy(nodes);
    assert_eq!(Walk::new(volume.root()).filter(|item| item.is_ok()).count(), 2 * 5001);
}

#[test]
fn the_entries_that_are_held_are_bounded_in_a_deep_tree_of_long_lists() {
    const DEPTH: u64 = 600;
    let names: Vec<&'static str> = (0..300).map(|n| &*format!("x{n:0200}").leak()).collect();
    let list = |ino| {
        let rest = names.iter().map(|name| (*name, DEPTH + 3));
        let entries: Vec<(&'static str, u64)> = [("d", ino + 1)].into_iter().chain(rest).collect();
        dir(&entries)
    };
    let volume =
        toy((2..2 + DEPTH).map(|ino| (ino, list(ino))).chain([(DEPTH + 2, dir(&[])), (DEPTH + 3, text(""))]));
    for order in [Order::Name, Order::Directory] {
        let mut walk = Walk::new(volume.root()).order(order);
        let deepest = walk.by_ref().take(DEPTH as usize + 1).last().unwrap().unwrap();
        assert_eq!(deepest.depth, DEPTH as usize);
        let held: usize = walk.stack.iter().map(|frame| frame.held).sum();
        assert!(held > HELD / 2 && held < HELD + DEPTH as usize * (PORTION_MIN + 512), "{order:?}: {held}");
    }
}
