//! The table of types in docs/engine.md, generated from the types and from the runs that passed.

use std::fmt::Write as _;
use std::fs;

use obento_driver::StoredProperties;
use obento_linux::types::{TYPES, Type};
use obento_testkit::passed::is_reported;
use obento_testkit::recipes::{EMPTY, FILLED, Recipe};

use super::contract::{EXCEPT, cases};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engine.md");
/// The marks around that part of the page.
const MARKS: [&str; 2] = ["<!-- by cargo xtask types -->\n", "<!-- up to here -->\n"];

/// The properties that types may lack, in words.
const LACKING: [(StoredProperties, &str); 10] = [
    (StoredProperties::DIRECTORIES, "directories"),
    (StoredProperties::MODES, "permissions"),
    (StoredProperties::OWNERS, "owners"),
    (StoredProperties::SYMLINKS, "symbolic links"),
    (StoredProperties::SPECIAL, "devices and FIFOs"),
    (StoredProperties::HOLES, "holes"),
    (StoredProperties::NAMES, "names of arbitrary bytes"),
    (StoredProperties::CTIME, "change times"),
    (StoredProperties::ATIME, "access times"),
    (StoredProperties::SUBDIRECTORIES, "counts of subdirectories"),
];

fn recipe(recipes: &'static [Recipe], name: &str) -> Option<&'static Recipe> {
    recipes.iter().find(|recipe| recipe.name == name)
}

/// Whether the tree was read back, and the differences.
fn outcome(word: String, recipe: &Recipe, what: &str) -> String {
    match (is_reported(recipe.name, what), recipe.remark) {
        (false, _) => String::new(),
        (true, "") => word,
        (true, remark) => format!("{word} ({remark})"),
    }
}

/// The program that filled the volume.
fn filler(recipe: &Recipe) -> String {
    recipe.program.map_or("our own tests".to_owned(), |program| format!("`{program}`"))
}

/// A row of the table.
fn row(kind: &Type) -> String {
    let name = kind.names[0];
    let read = recipe(FILLED, name).map(|recipe| outcome(filler(recipe), recipe, "read"));
    let where_to = |recipe: &Recipe| if recipe.program.is_some() { "yes" } else { "yes, on our own image" };
    let written = recipe(EMPTY, name).map(|recipe| outcome(where_to(recipe).to_owned(), recipe, "written"));
    assert!(read.is_some() || written.is_some(), "{name}: no run opens one");
    let [held, left_out] = cases(name).map(|cases| cases.len());
    let contract = written.as_ref().filter(|_| is_reported(name, "contract"));
    let contract = contract.map(|_| format!("{held} of {}", held + left_out)).unwrap_or_default();
    let lost = LACKING.iter().filter(|(what, _)| kind.writes && !kind.keeps.contains(*what));
    let lost: Vec<_> = lost.map(|(_, word)| *word).collect();
    let check = kind.checker.map(|check| format!("`{} {}`", check.tool.program, check.look.join(" ")));
    let check = check.unwrap_or_default().replace(" `", "`");
    let read = read.unwrap_or_default();
    let unwritten = if kind.writes { "no program creates an empty volume" } else { "read-only" };
    let written = written.unwrap_or_else(|| unwritten.to_owned());
    format!("| {name} | {read} | {written} | {contract} | {} | {check} |\n", lost.join(", "))
}

/// Returns the text between the marks.
fn part() -> String {
    let mut part = String::from(
        "\n| type | read | written | conformance cases | does not store | check |\n|---|---|---|---|---|---|\n",
    );
    TYPES.iter().for_each(|kind| part += &row(kind));
    part += "\nConformance cases that Linux does not satisfy on these types:\n\n| case | types | what Linux does |\n|---|---|---|\n";
    for except in EXCEPT {
        let (case, types) = (except.case.replace('_', " "), except.types.join(", "));
        writeln!(part, "| {case} | {types} | {} |", except.why).unwrap();
    }
    part + "\n"
}

#[test]
fn the_documentation_lists_all_types_with_their_visible_parts() {
    let page = fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(MARKS[0]).expect("where the part begins");
    let (found, after) = rest.split_once(MARKS[1]).expect("where it ends");
    let part = part();
    if std::env::var_os("OBENTO_PASSED").is_some() {
        fs::write(PAGE, [before, MARKS[0], part.as_str(), MARKS[1], after].concat()).unwrap();
    } else {
        let different = found.lines().zip(part.lines()).find(|(found, line)| found != line);
        assert!(
            found == part,
            "`cargo xtask types` writes the table in docs/engine.md; first: {different:?}"
        );
    }
}

#[test]
fn an_exception_names_an_existing_case_and_existing_types() {
    for except in EXCEPT {
        let [held, left_out] = cases("");
        let mut all = held.iter().chain(&left_out);
        assert!(all.any(|(case, _)| *case == except.case), "{}", except.case);
        assert!(except.types.iter().all(|name| recipe(EMPTY, name).is_some()), "{}", except.case);
    }
}
