//! Images of `mkfs.jffs2` read as the directory from which they were made: every codec, both byte orders.

mod common;

use std::fs;
use std::sync::Arc;

use common::{compare, host_tree, make, open, oracles, tree_of};
use obento_block::MemDevice;
use obento_driver::{Driver as _, Evidence};
use obento_jffs2::Jffs2Driver;
use obento_testkit::oracle::{Oracle, program, run};
use obento_testkit::require;

/// Arguments of `mkfs.jffs2`, and the codecs that `info` names.
const SHAPES: &[(&str, &str)] = &[
    ("-l -e 64KiB -p", "zlib"),
    ("-b -e 64KiB -p", "zlib"),
    ("-l -e 128KiB -n", "zlib"),
    ("-l -e 64KiB -m none", "none"),
    ("-b -e 16KiB -m none -p", "none"),
    ("-l -e 64KiB -x zlib -x lzo", "rtime"),
    ("-b -e 64KiB -x zlib -x lzo", "rtime"),
    ("-l -e 64KiB -X lzo -x zlib -x rtime", "lzo"),
    ("-b -e 64KiB -X lzo -x zlib -x rtime", "lzo"),
    ("-l -e 32KiB -X lzo -m size -s 16384 -p=4194304", "zlib"),
    ("-b -e 8KiB -s 512 -c 20", "zlib"),
];

#[test]
fn images_of_every_codec_and_both_orders_read_as_their_source() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    common::fill(&tree);
    let expected = host_tree(&tree);
    for (arguments, codec) in SHAPES {
        let bytes = make(folder.path(), &tree, &format!("{arguments} --with-xattr"));
        let volume = open(bytes);
        compare(&tree_of(&*volume), &expected);
        let info = volume.info();
        let fact = |name| &info.facts.iter().find(|fact| fact.name == name).unwrap().value;
        assert!(fact("compression").contains(codec), "{arguments}: {info:?}");
        let order = if arguments.starts_with("-b") { "big-endian" } else { "little-endian" };
        assert_eq!((fact("byte order").as_str(), info.state.as_str()), (order, "clean"));
        let size = arguments.split("-e ").nth(1).unwrap().split("KiB").next().unwrap();
        let size = if arguments.contains("-n") {
            "unknown".into()
        } else {
            (size.parse::<u32>().unwrap() << 10).to_string()
        };
        assert_eq!(fact("erase block size"), &size, "{arguments}");
    }
}

#[test]
fn jefferson_extracts_the_same_files_from_images_of_every_codec_and_both_orders() {
    if !oracles() || !require(&[Oracle::PythonModule("jefferson")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    common::fill(&tree);
    for (arguments, _) in SHAPES {
        let bytes = make(folder.path(), &tree, arguments);
        common::compare_with_jefferson(&folder.path().join("image"), &tree_of(&*open(bytes)), arguments);
    }
}

#[test]
fn an_image_with_summaries_reads_as_its_source() {
    if !oracles() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    common::fill(&tree);
    for order in ["-l", "-b"] {
        make(folder.path(), &tree, &format!("{order} -e 64KiB --with-xattr"));
        let (from, to) = (folder.path().join("image"), folder.path().join("summed"));
        run(program("sumtool").args([order, "-e", "64KiB", "-p", "-i"]).arg(&from).arg("-o").arg(&to))
            .unwrap();
        let volume = open(fs::read(&to).unwrap());
        compare(&tree_of(&*volume), &host_tree(&tree));
        let summaries = volume.info().facts.into_iter().find(|fact| fact.name == "summaries").unwrap();
        assert_ne!(summaries.value, "0");
    }
}

#[test]
fn an_image_is_recognised_also_after_an_erased_block() {
    let Some(image) = common::filled() else { return };
    let probe =
        |bytes: Vec<u8>| Jffs2Driver.probe(&MemDevice::read_only(bytes)).unwrap().map(|found| found.evidence);
    assert_eq!(probe(image.clone()), Some(Evidence::Signature));
    let shifted = [vec![0xff; 65_536], image.clone()].concat();
    assert_eq!(probe(shifted.clone()), Some(Evidence::Traces));
    let (one, other) = (open(image), common::open_device(Arc::new(MemDevice::read_only(shifted))));
    assert!(tree_of(&*one) == tree_of(&*other));
    assert_eq!(probe(vec![0xff; 1 << 20]), None);
    assert_eq!(probe(vec![0; 8]), None);
    assert_eq!(probe(Vec::new()), None);
}
