//! Trees whose files are added in any order.

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use obento_base::{Name, Timestamp};

use super::{Body, DataId, NodeId, Tree, TreeBuilder, TreeError};

fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).unwrap()
}

fn builder() -> TreeBuilder {
    TreeBuilder::new(TreeBuilder::bare_directory(Timestamp::EPOCH))
}

fn put(tree: &mut TreeBuilder, dir: NodeId, text: &str, body: Body) -> NodeId {
    let attr = TreeBuilder::bare_directory(Timestamp::EPOCH);
    tree.put(dir, name(text), body, attr, b"target").unwrap().node
}

const FILE: Body = Body::File { size: 5, data: Some(DataId(0)) };

/// Returns every path with its node, in the order of the tree.
fn paths(tree: &Tree) -> Vec<(Vec<u8>, u32)> {
    tree.nodes().map(|(id, _)| (tree.path(id), id.0)).collect()
}

#[test]
fn order_and_numbers_follow_from_names_alone() {
    let make = |names: &[&str]| {
        let mut tree = builder();
        let dirs = ["b", "a"].map(|text| put(&mut tree, NodeId::ROOT, text, Body::Directory));
        for text in names {
            put(&mut tree, dirs[0], text, FILE);
        }
        put(&mut tree, dirs[1], "x", Body::Symlink);
        put(&mut tree, NodeId::ROOT, "z", Body::Fifo);
        tree.finish()
    };
    let (one, two) = (make(&["3", "1", "2"]), make(&["2", "3", "1"]));
    assert_eq!(paths(&one), paths(&two));
    let names: Vec<Vec<u8>> = paths(&one).into_iter().map(|(path, _)| path).collect();
    let expected =
        ["/", "/a", "/b", "/z", "/a/x", "/b/1", "/b/2", "/b/3"].map(|path| path.as_bytes().to_vec());
    assert_eq!(names, expected);
    assert_eq!(one.node(NodeId::ROOT).unwrap().links, 2);
    assert_eq!(one.target(one.node(NodeId(4)).unwrap()), b"target");
    assert_eq!(one.child(NodeId(2), name("2")), Some(NodeId(6)));
}

#[test]
fn removed_and_replaced_files_are_gone_with_their_contents() {
    let mut tree = builder();
    let dir = put(&mut tree, NodeId::ROOT, "dir", Body::Directory);
    let below = put(&mut tree, dir, "below", Body::Directory);
    let file = put(&mut tree, below, "file", FILE);
    tree.link(NodeId::ROOT, name("kept"), file).unwrap();
    put(&mut tree, NodeId::ROOT, "dir", FILE);
    assert_eq!(tree.lookup(below, name("file")), None);
    let gone = put(&mut tree, NodeId::ROOT, "gone", FILE);
    assert!(tree.remove(NodeId::ROOT, name("gone")) && !tree.remove(NodeId::ROOT, name("gone")));
    assert_eq!(tree.link(NodeId::ROOT, name("l"), NodeId::ROOT), Err(TreeError::LinkToDirectory));
    assert_eq!(tree.link(gone, name("l"), file), Err(TreeError::NotDirectory));
    let tree = tree.finish();
    let names: Vec<&[u8]> = tree.children(NodeId::ROOT).map(|(name, _)| name).collect();
    assert_eq!(names, [b"dir", b"kept".as_slice()]);
    assert_eq!((tree.len(), tree.node(NodeId(2)).unwrap().links), (3, 1));
}

#[test]
fn a_directory_that_occurs_twice_keeps_its_contents() {
    let mut tree = builder();
    let dir = put(&mut tree, NodeId::ROOT, "dir", Body::Directory);
    put(&mut tree, dir, "file", FILE);
    assert_eq!(put(&mut tree, NodeId::ROOT, "dir", Body::Directory), dir);
    assert!(tree.lookup(dir, name("file")).is_some());
}

#[test]
fn equal_sets_of_attributes_are_one_and_the_last_value_of_a_name_holds() {
    let mut tree = builder();
    let pair = |name: &str, value: &str| (Box::from(name.as_bytes()), Box::from(value.as_bytes()));
    let one = tree.xattrs(vec![pair("b", "2"), pair("a", "1")]).unwrap().unwrap();
    let two = tree.xattrs(vec![pair("a", "0"), pair("a", "1"), pair("b", "2")]).unwrap().unwrap();
    assert_eq!(one, two);
    assert_eq!(tree.xattr_list(one), [pair("a", "1"), pair("b", "2")]);
    assert_eq!(tree.xattrs(vec![]), Ok(None));
}

#[test]
fn a_node_is_small() {
    assert!(size_of::<super::Node>() <= 72, "{}", size_of::<super::Node>());
}

#[test]
fn sets_of_attributes_are_numbered_by_their_files_and_those_of_none_are_gone() {
    let make = |names: &[&str]| {
        let mut tree = builder();
        for text in names {
            let value: Box<[u8]> = text.as_bytes().into();
            let attr = super::NodeAttr {
                xattrs: tree.xattrs([(Box::from(&b"user.a"[..]), value)]).unwrap(),
                ..TreeBuilder::bare_directory(Timestamp::EPOCH)
            };
            tree.put(NodeId::ROOT, name(text), FILE, attr, b"").unwrap();
        }
        tree.remove(NodeId::ROOT, name("2"));
        put(&mut tree, NodeId::ROOT, "4", FILE);
        tree.finish()
    };
    let (one, two) = (make(&["2", "3", "1"]), make(&["1", "2", "3"]));
    for tree in [one, two] {
        let sets: Vec<&[u8]> = tree.xattr_sets().iter().map(|set| &*set[0].1).collect();
        assert_eq!(sets, [b"1", b"3"]);
        let of = |text: &str| {
            let node = tree.node(tree.child(NodeId::ROOT, name(text)).unwrap()).unwrap();
            node.attr.xattrs.map(super::XattrsId::index)
        };
        assert_eq!((of("1"), of("3"), of("4")), (Some(0), Some(1), None));
    }
}
