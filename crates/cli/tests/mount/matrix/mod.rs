//! Driver x host x case: the conformance cases, and the behaviour that programs see. Every format that can be
//! created is tested through the library and behind a mount point. This test prints `docs/matrix.md`; `cargo xtask
//! matrix` writes the page.

mod readers;
mod servers;
mod volume;

use std::fmt::Write as _;
use std::fs;
use std::sync::{Arc, LazyLock, Mutex};

use obento::base::FileKind;
use obento::driver::{Access, XattrMode};
use obento_testkit::conformance::{reading_cases, writing_cases};
use obento_testkit::hosts::{CaseEnd, Host, HostCase, cases, run};
use obento_testkit::plan::Op;
use obento_testkit::{Oracle, require};

use crate::support::transports;
use volume::{Mount, SHAPES, Shape, Volume};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/matrix.md");

/// A part of the page.
struct Table {
    title: &'static str,
    columns: Vec<&'static str>,
    /// The results of each case, one per column, as a [`CaseEnd`] prints them.
    rows: Vec<(String, Vec<String>)>,
}

impl Table {
    /// Returns the rows of `ends` by columns.
    fn new(title: &'static str, names: Vec<String>, ends: Vec<(&'static str, Vec<CaseEnd>)>) -> Self {
        let cells = |at: usize| ends.iter().map(|(_, ends)| ends[at].to_string()).collect();
        let rows = names.into_iter().enumerate().map(|(at, name)| (name, cells(at))).collect();
        Self { title, columns: ends.iter().map(|(column, _)| *column).collect(), rows }
    }

    fn text(&self) -> String {
        let mut text = format!("\n## {}\n\n{}\n\n", self.title, self.count());
        let (columns, lines) = (self.columns.join(" | "), "---|".repeat(self.columns.len()));
        writeln!(text, "| case | {columns} |\n|---|{lines}").unwrap();
        for (name, ends) in &self.rows {
            writeln!(text, "| {name} | {} |", ends.join(" | ")).unwrap();
        }
        text
    }

    /// Returns the numbers of passed and refused cells.
    fn count(&self) -> String {
        let ends = || self.rows.iter().flat_map(|(_, ends)| ends);
        let passed = ends().filter(|end| **end == CaseEnd::Passed.to_string()).count();
        let refused = ends().filter(|end| end.starts_with("refused")).count();
        format!(
            "{passed} cells passed, and {refused} were refused. Each refused cell names the missing capability."
        )
    }

    fn expect_no_failure(&self) {
        let failures: Vec<String> = self
            .rows
            .iter()
            .flat_map(|(name, ends)| {
                ends.iter().zip(&self.columns).map(move |(end, column)| (name, column, end))
            })
            .filter(|(.., end)| end.starts_with("FAILED"))
            .map(|(name, column, end)| format!("{column}, {name}: {end}"))
            .collect();
        assert!(failures.is_empty(), "{failures:#?}");
    }

    /// Compares the page with this part, and writes it if requested.
    fn is_on_the_page(&self) {
        static WRITING: Mutex<()> = Mutex::new(());
        let text = self.text();
        println!("{text}");
        self.expect_no_failure();
        let _one_at_a_time = WRITING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let page = fs::read_to_string(PAGE).unwrap_or_default();
        let mark = format!("\n## {}\n", self.title);
        let begin = page.find(&mark).unwrap_or(page.len());
        let behind = page.get(begin + 1..).unwrap_or_default();
        let end = behind.find("\n## ").map_or(page.len(), |at| begin + 1 + at);
        if std::env::var_os("OBENTO_WRITE_MATRIX").is_some() {
            fs::write(PAGE, format!("{}{text}{}", &page[..begin], &page[end..])).unwrap();
            return;
        }
        assert!(page[begin..end] == text, "docs/matrix.md is out of date: run `cargo xtask matrix`");
    }
}

/// Returns the results of the module, which `cargo xtask matrix` collected in the file `ends`.
fn in_the_kernel(ends: &str) -> Table {
    let ends: Vec<Vec<&str>> = ends.lines().map(|line| line.split('\t').collect()).collect();
    let is_small = |shape: &&Shape| shape.is_mounted() && shape.is_small();
    let columns: Vec<_> = SHAPES.iter().filter(is_small).map(|shape| shape.name).collect();
    let cell = |case: &str, column: &str| {
        let end = ends.iter().find(|end| end[..2] == [column, case]);
        end.unwrap_or_else(|| panic!("no result of {column}: {case}"))[2].to_owned()
    };
    let row = |case: HostCase| {
        (case.name.to_owned(), columns.iter().map(|column| cell(case.name, column)).collect())
    };
    let rows = cases().into_iter().map(row).collect();
    Table { title: "What programs see through the kernel module", columns, rows }
}

/// Only `cargo xtask matrix` runs these cases again: they need a kernel.
#[test]
fn programs_see_what_they_should_through_the_kernel_module_as_the_page_says() {
    match std::env::var_os("OBENTO_MODULE_ENDS") {
        Some(file) => in_the_kernel(&fs::read_to_string(file).unwrap()).is_on_the_page(),
        None => {
            let page = fs::read_to_string(PAGE).unwrap();
            let (_, part) = page.split_once("\n## What programs see through the kernel module\n").unwrap();
            let rows = part.lines().take_while(|line| !line.starts_with("## "));
            let names: Vec<_> = rows.filter_map(|row| row.strip_prefix("| ")?.split(" | ").next()).collect();
            let cases: Vec<_> = cases().iter().map(|case| case.name).collect();
            assert_eq!(names.get(1..), Some(&*cases), "run `cargo xtask matrix`");
        }
    }
}

fn ends(cases: &[HostCase], host: &mut dyn Host) -> Vec<CaseEnd> {
    cases.iter().enumerate().map(|(number, case)| run(case, number, host)).collect()
}

/// Returns the result of a case; a volume with problems that `check` finds afterwards is a failure.
fn checked(end: CaseEnd, volume: &Volume) -> CaseEnd {
    match (end, volume.check()) {
        (CaseEnd::Passed, Err(found)) => CaseEnd::Failed(format!("afterwards: {found}")),
        (end, _) => end,
    }
}

/// Ends the changes of a volume, if the case has not done that.
fn close(fs: &dyn obento::driver::FileSystem) {
    fs.writable().map_or(Ok(()), |changes| changes.close()).expect("a sound device");
}

/// Runs the host cases, and then the cases that read a volume, on what the former have written. Both
/// have the same form.
fn looked_at(shape: &Shape) -> (Vec<CaseEnd>, Vec<CaseEnd>) {
    let volume = Arc::new(shape.volume());
    let mut library = volume.library();
    let seen = ends(&cases(), &mut library);
    // Attributes for the cases that require them, if the format has attributes.
    let path = "of-an-attribute".to_owned();
    library.act(0, &Op::Create(path.clone(), FileKind::Regular, 0o644)).expect("room");
    let _refused_without = library.act(1, &Op::SetXattr(path, "user.kept".into(), 40, XattrMode::Set));
    // The tree is read before the volume is closed: a volume in memory can be closed once.
    let asked = |fs: &dyn obento::driver::FileSystem| {
        reading_cases().into_iter().map(|(_, case)| CaseEnd::of(|| case(fs))).collect::<Vec<_>>()
    };
    library.close();
    let fs = volume.open(Access::ReadOnly).expect("a sound volume opens");
    let asked = asked(&*fs);
    drop(fs);
    volume.check().unwrap_or_else(|found| panic!("{}: {found}", shape.name));
    (seen, asked)
}

/// Runs the cases that change a volume, each on a new volume.
fn changed(shape: &Shape) -> Vec<CaseEnd> {
    let case = |(_, case): (&str, obento_testkit::conformance::Case)| {
        let volume = shape.volume();
        let fs = volume.open(Access::ReadWrite).expect("a new volume opens");
        let end = CaseEnd::of(|| {
            let outcome = case(&*fs);
            close(&*fs);
            outcome
        });
        drop(fs);
        checked(end, &volume)
    };
    writing_cases().into_iter().map(case).collect()
}

fn sentence(name: &str) -> String {
    name.replace('_', " ")
}

/// Runs the contract, and the host cases through the library.
static LIBRARY: LazyLock<[Table; 2]> = LazyLock::new(|| {
    let (mut contract, mut programs) = (Vec::new(), Vec::new());
    for shape in SHAPES {
        let (seen, asked) = looked_at(shape);
        programs.push((shape.name, seen));
        if shape.is_small() {
            contract.push((shape.name, [changed(shape), asked].concat()));
        }
    }
    let names = writing_cases().into_iter().chain(reading_cases()).map(|(name, _)| sentence(name)).collect();
    let seen = cases().iter().map(|case| case.name.to_owned()).collect();
    [
        Table::new("The contract", names, contract),
        Table::new("What programs see through the library", seen, programs),
    ]
});

#[test]
fn every_format_that_can_be_made_is_on_the_page() {
    assert_eq!(Shape::missing(), Vec::<&str>::new());
    let page = fs::read_to_string(PAGE).unwrap();
    assert!(page.starts_with(include_str!("head.md")), "the head of docs/matrix.md is head.md");
}

#[test]
fn every_driver_keeps_the_contract_or_lacks_what_a_case_needs_as_the_page_says() {
    LIBRARY[0].is_on_the_page();
}

#[test]
fn programs_see_what_they_should_through_the_library_as_the_page_says() {
    LIBRARY[1].is_on_the_page();
}

#[test]
fn programs_see_what_they_should_behind_a_mount_as_the_page_says() {
    if !require(&[Oracle::Fuse, Oracle::Root]) {
        return;
    }
    for transport in transports() {
        println!("{transport}");
        behind_a_mount(transport).is_on_the_page();
    }
}

/// Runs the host cases behind mounts over this transport.
fn behind_a_mount(transport: &'static str) -> Table {
    let cases = cases();
    let behind = SHAPES.iter().filter(|shape| shape.is_mounted()).map(|shape| {
        let limits = shape.volume().open(Access::ReadOnly).expect("a new volume opens").limits();
        let mount = Mount::new(shape, transport);
        let ends = ends(&cases, &mut mount.host(limits));
        mount.umount();
        mount.check();
        (shape.name, ends)
    });
    let names = cases.iter().map(|case| case.name.to_owned()).collect();
    Table::new("What programs see through a FUSE mount", names, behind.collect())
}
