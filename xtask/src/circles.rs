//! Circles of imports: at most [`LARGEST`] files of a crate import each other.
//!
//! An import is a `use` declaration or a path. It leads to the file that defines the item: re-exports are followed. A file
//! that declares a module, only re-exports its names, or calls it by its name (`child::run()`) does not import it.
//! Code under `#[cfg(test)]` does not count. The check reads tokens, and does not expand macros.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::tokens::tokens;
use crate::type_names::crates;

/// The most files that may import each other.
const LARGEST: usize = 4;
/// The most re-exports that are followed. Declarations that refer to each other do not end otherwise.
const DEPTH: usize = 16;

/// Fails if more than [`LARGEST`] files of a crate below `root` import each other, and names these files.
pub fn check(root: &Path) -> Result<()> {
    let mut found = Vec::new();
    for folder in crates(&root.join("crates"))?.into_iter().chain([root.join("xtask")]) {
        for start in ["src/lib.rs", "src/main.rs"].map(|name| folder.join(name)) {
            if start.is_file() {
                let circles = Modules::read(&start)?.circles();
                let shown = |path: PathBuf| path.strip_prefix(root).unwrap_or(&path).display().to_string();
                let shown =
                    |circle: Vec<PathBuf>| circle.into_iter().map(shown).collect::<Vec<_>>().join(", ");
                found.extend(circles.into_iter().map(shown));
            }
        }
    }
    ensure!(
        found.is_empty(),
        "these files import each other; move what they share to a file that imports none of them:\n{}",
        found.join("\n")
    );
    Ok(())
}

/// A name in a `use` declaration.
struct Import {
    path: Vec<String>,
    /// The name that it gets.
    name: String,
    is_public: bool,
}

/// A file.
#[derive(Default)]
struct Module {
    file: PathBuf,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    imports: Vec<Import>,
    /// The names of the items that it declares.
    items: BTreeSet<String>,
    /// The tokens without `use` declarations and without declarations of modules.
    body: Vec<String>,
}

/// The files of a crate. The first one is the root.
struct Modules(Vec<Module>);

/// What a path refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// An item in this module.
    Item(usize),
}

impl Modules {
    fn read(start: &Path) -> Result<Self> {
        let mut this = Self(Vec::new());
        let folder = start.parent().unwrap_or(start);
        this.add(start.to_owned(), folder, None)?;
        Ok(this)
    }

    /// Adds the module in `file`, whose child modules are in `folder`.
    fn add(&mut self, file: PathBuf, folder: &Path, parent: Option<usize>) -> Result<usize> {
        let number = self.0.len();
        let (module, declared) = Module::parse(&tokens(&fs::read_to_string(&file)?));
        self.0.push(Module { file, parent, ..module });
        for name in declared {
            let folder = folder.join(&name);
            let file = folder.with_extension("rs");
            let file = if file.is_file() { file } else { folder.join("mod.rs") };
            if file.is_file() {
                let child = self.add(file, &folder, Some(number))?;
                self.0[number].items.remove(&name);
                self.0[number].children.insert(name, child);
            }
        }
        Ok(number)
    }

    /// Returns what `path` in the module `from` refers to; `None` for an item of another crate.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<Target> {
        let depth = depth.checked_sub(1)?;
        let mut current = from;
        for (at, name) in path.iter().enumerate() {
            let module = &self.0[current];
            match name.as_str() {
                "crate" => current = 0,
                "super" => current = module.parent?,
                "self" | "*" => {}
                name => {
                    if let Some(child) = module.children.get(name) {
                        current = *child;
                        continue;
                    }
                    if module.items.contains(name) {
                        return Some(Target::Item(current));
                    }
                    return self.resolve_imported(current, name, path.get(at + 1..)?, depth);
                }
            }
        }
        Some(Target::Module(current))
    }

    /// Resolves `name` and the rest of its path through the `use` declarations of a module.
    fn resolve_imported(&self, module: usize, name: &str, rest: &[String], depth: usize) -> Option<Target> {
        let imports = &self.0[module].imports;
        if let Some(import) = imports.iter().find(|import| import.name == name) {
            // A path that begins with its own name is that of another crate.
            let is_foreign = import.path.first().is_some_and(|first| first == name);
            let path = [&import.path[..], rest].concat();
            return if is_foreign { None } else { self.resolve(module, &path, depth) };
        }
        let all = imports.iter().filter(|import| import.name == "*");
        all.filter_map(|import| self.resolve(module, &import.path, depth)).find_map(|target| match target {
            Target::Module(other) if other != module => {
                self.resolve(other, &[&[name.to_owned()], rest].concat(), depth)
            }
            _ => None,
        })
    }

    /// Returns the modules that a module imports.
    fn imported(&self, number: usize) -> BTreeSet<usize> {
        let module = &self.0[number];
        let used: BTreeSet<&str> = module.body.iter().map(String::as_str).collect();
        let mut found = BTreeSet::new();
        let mut add = |target| match target {
            Some(Target::Item(other)) if other != number => drop(found.insert(other)),
            _ => {}
        };
        for import in &module.imports {
            let is_used = !import.is_public || used.contains(import.name.as_str());
            let target = self.resolve(number, &import.path, DEPTH);
            match target {
                Some(Target::Module(other)) if import.name == "*" && !import.is_public => {
                    let names = self.0[other].items.iter().filter(|name| used.contains(name.as_str()));
                    names.for_each(|name| add(self.resolve(other, std::slice::from_ref(name), DEPTH)));
                }
                _ if is_used => add(target),
                _ => {}
            }
        }
        for path in paths(&module.body).filter(|path| !module.children.contains_key(&path[0])) {
            add(self.resolve(number, &path, DEPTH));
        }
        found
    }

    /// Returns the groups of more than [`LARGEST`] files that import each other.
    fn circles(&self) -> Vec<Vec<PathBuf>> {
        let imported: Vec<_> = (0..self.0.len()).map(|number| self.imported(number)).collect();
        let reachable: Vec<BTreeSet<usize>> =
            (0..self.0.len()).map(|start| reachable(&imported, start)).collect();
        let circle = |start: usize| -> BTreeSet<usize> {
            reachable[start].iter().copied().filter(|other| reachable[*other].contains(&start)).collect()
        };
        let circles: BTreeSet<BTreeSet<usize>> = (0..self.0.len()).map(circle).collect();
        let files = |circle: BTreeSet<usize>| circle.into_iter().map(|at| self.0[at].file.clone()).collect();
        circles.into_iter().filter(|circle| circle.len() > LARGEST).map(files).collect()
    }
}

/// Returns the modules that `start` imports directly or through other modules.
fn reachable(imported: &[BTreeSet<usize>], start: usize) -> BTreeSet<usize> {
    let (mut found, mut todo) = (BTreeSet::new(), vec![start]);
    while let Some(next) = todo.pop() {
        todo.extend(imported[next].iter().filter(|other| found.insert(**other)));
    }
    found
}

/// Returns the paths of at least two names.
fn paths(body: &[String]) -> impl Iterator<Item = Vec<String>> + '_ {
    let is_name = |at: usize| body.get(at).is_some_and(|token| is_name(token));
    let joins = move |at: usize| body.get(at).is_some_and(|token| token == "::");
    let is_start = move |at: usize| is_name(at) && joins(at + 1) && (at == 0 || !joins(at - 1));
    (0..body.len()).filter(move |at| is_start(*at)).map(move |start| {
        let next = |at: &usize| (joins(at + 1) && is_name(at + 2)).then_some(at + 2);
        std::iter::successors(Some(start), next).map(|at| body[at].clone()).collect()
    })
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

impl Module {
    /// Returns the module with these tokens, and the modules that it declares.
    fn parse(tokens: &[String]) -> (Self, Vec<String>) {
        let (mut module, mut declared, mut at) = (Self::default(), Vec::new(), 0);
        while let Some(token) = tokens.get(at) {
            let following = |by: usize| tokens.get(at + by).map_or("", String::as_str);
            match token.as_str() {
                "use" => {
                    let len = tokens[at..].iter().position(|token| token == ";").unwrap_or(1);
                    let is_public =
                        module.body.last().is_some_and(|last| last == "pub") || is_restricted(&module.body);
                    add_imports(&tokens[at + 1..at + len], &[], is_public, &mut module.imports);
                    at += len;
                }
                "mod" if following(2) == ";" => {
                    declared.push(following(1).to_owned());
                    at += 2;
                }
                "struct" | "enum" | "union" | "trait" | "type" | "fn" | "const" | "static" | "mod" => {
                    let skipped = usize::from(following(1) == "mut");
                    module.items.insert(following(1 + skipped).to_owned());
                    module.body.push(token.clone());
                }
                "macro_rules" => {
                    module.items.insert(following(2).to_owned());
                }
                _ => module.body.push(token.clone()),
            }
            at += 1;
        }
        (module, declared)
    }
}

/// Returns whether `body` ends with `pub(...)`.
fn is_restricted(body: &[String]) -> bool {
    let open =
        body.iter().rposition(|token| token == "(").filter(|_| body.last().is_some_and(|last| last == ")"));
    open.and_then(|open| body.get(open.checked_sub(1)?)).is_some_and(|token| token == "pub")
}

/// Adds the names of a `use` declaration, whose paths begin with `prefix`.
fn add_imports(tokens: &[String], prefix: &[String], is_public: bool, imports: &mut Vec<Import>) {
    let mut path = prefix.to_vec();
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => {
                let inner = tokens.get(at + 1..tokens.len() - 1).unwrap_or_default();
                parts(inner).for_each(|part| add_imports(part, &path, is_public, imports));
                return;
            }
            "as" => {
                let name = tokens.get(at + 1).cloned().unwrap_or_default();
                imports.push(Import { path, name, is_public });
                return;
            }
            "::" => {}
            _ => path.push(token.clone()),
        }
    }
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(name) = path.last().filter(|_| !tokens.is_empty()).cloned() {
        imports.push(Import { path, name, is_public });
    }
}

/// Returns the parts between the commas outside of braces.
fn parts(tokens: &[String]) -> impl Iterator<Item = &[String]> {
    let mut depth = 0_usize;
    tokens.split(move |token| {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && token == ","
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the circles of a crate with five files, of which `a` to `d` import the next one, and `d` begins with
    /// `last`.
    fn circles(root: &str, last: &str) -> Vec<usize> {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        fs::write(
            file("lib.rs"),
            format!("mod a;\nmod b;\nmod c;\nmod d;\nmod e;\n{root}\npub struct Root;"),
        )
        .unwrap();
        for (name, next) in [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")] {
            let begin = if name == "d" { last } else { "" };
            let upper = name.to_uppercase();
            let text = format!(
                "{begin}\nuse crate::{next}::{};\npub struct {upper};\npub fn {name}() {{}}",
                next.to_uppercase()
            );
            fs::write(file(&format!("{name}.rs")), text).unwrap();
        }
        fs::write(file("e.rs"), "use crate::a;\npub struct E(a::A);\nfn f() { crate::a::a() }").unwrap();
        let modules = Modules::read(&file("lib.rs")).unwrap();
        modules.circles().iter().map(Vec::len).collect()
    }

    #[test]
    fn five_files_that_import_each_other_are_a_circle() {
        assert_eq!(circles("", ""), [5]);
    }

    #[test]
    fn a_re_export_leads_to_the_file_of_the_item() {
        assert_eq!(circles("pub use a::A;", "use super::A as Other;"), [5]);
        assert_eq!(circles("use a::A;\nfn f(_: A) {}", "use super::{A, Root};"), [6]);
    }

    #[test]
    fn tests_and_comments_and_declarations_are_no_imports() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let root = "mod a;\n// use a::A;\nconst T: &str = \"use a::A;\";\n#[cfg(test)]\nmod tests { use super::a::A; }\npub struct Root;";
        fs::write(file("lib.rs"), root).unwrap();
        fs::write(file("a.rs"), "use super::{\n    Root,\n};\npub struct A<'a>(&'a Root, char);").unwrap();
        let modules = Modules::read(&file("lib.rs")).unwrap();
        assert_eq!(modules.imported(0), BTreeSet::new());
        assert_eq!(modules.imported(1), BTreeSet::from([0]));
    }
}
