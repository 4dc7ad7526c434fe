//! Tests that each target has a program and seeds, and runs on its seeds.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use obento_fuzzing::TARGETS;

fn fuzz() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz"))
}

#[test]
fn every_target_runs_over_its_seeds_and_nothing() {
    for target in &TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        println!("{}: {} seeds", target.name, seeds.len());
        (target.run)(&[]);
        seeds.iter().for_each(|seed| (target.run)(seed));
    }
}

#[test]
fn every_target_has_a_program_and_every_program_has_a_target() {
    let program = |name: &str| {
        format!(
            "#![no_main]\nuse libfuzzer_sys::fuzz_target;\n\n\
             fuzz_target!(init: obento_fuzzing::begin(\"{name}\"), |data: &[u8]| obento_fuzzing::run(data));\n"
        )
    };
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for target in &TARGETS {
        let path = format!("fuzz_targets/{}.rs", target.name);
        assert_eq!(fs::read_to_string(fuzz().join(&path)).unwrap(), program(target.name));
        let entry = format!("[[bin]]\nname = \"{}\"\npath = \"{path}\"\n", target.name);
        assert!(manifest.contains(&entry), "{} is not in fuzz/Cargo.toml", target.name);
    }
    let files = fs::read_dir(fuzz().join("fuzz_targets")).unwrap();
    let files: BTreeSet<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(files, TARGETS.iter().map(|target| format!("{}.rs", target.name)).collect());
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
}
