//! Whether the core's modules depend on each other as they say: each uses only those above it in the list of `src/lib.rs`;
//! and within `device` the methods of the two types whose methods are spread over its folders call only those of folders above
//! theirs in the list of `src/device/mod.rs`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItem, Item, ItemImpl, ItemMod, Member, Meta, Type, UseTree};

/// The types whose methods are spread over the folders of `device`.
const SPREAD: [&str; 2] = ["State", "DeviceAllocator"];
/// What values of each are called, as variables and fields.
const NAMES: [&[&str]; 2] = [&["state", "guarded", "guard"], &["device"]];
/// Modules that are free to use others as the documentation of `lib.rs` says.
const FREE: [&str; 1] = ["error"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../src")
}

/// The names in the first column of a file's table, with the number of their row.
fn rows(file: &Path) -> HashMap<String, usize> {
    let text = fs::read_to_string(file).expect("readable");
    let mut found = HashMap::new();
    let lines = text.lines().filter_map(|line| line.strip_prefix("//! |"));
    for (row, line) in lines.enumerate() {
        let first = line.split('|').next().unwrap_or_default();
        for name in first.split('`').skip(1).step_by(2) {
            found.insert(name.to_owned(), row);
        }
    }
    found
}

/// The sources in a directory, but for tests.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("listed") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("tests") {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The module or folder below `top` that a file belongs to.
fn room(top: &Path, file: &Path) -> String {
    let path = file.strip_prefix(top).expect("below");
    let first = path.components().next().expect("a name").as_os_str();
    let name = first.to_str().expect("a name");
    name.strip_suffix(".rs").unwrap_or(name).to_owned()
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string().contains("test"),
        _ => false,
    })
}

fn parse(file: &Path) -> syn::File {
    let text = fs::read_to_string(file).expect("readable");
    syn::parse_file(&text).expect("parsed")
}

/// Which of the types that are spread an `impl` is of.
fn spread(item: &ItemImpl) -> Option<usize> {
    let Type::Path(path) = &*item.self_ty else {
        return None;
    };
    let last = path.path.segments.last()?;
    SPREAD.iter().position(|name| last.ident == name)
}

/// Which of the types that are spread a variable or field is of, by its name.
fn named(name: &str) -> Option<usize> {
    NAMES.iter().position(|names| names.contains(&name))
}

/// What a file uses: paths, and methods of the types that are spread, by the number of the type.
#[derive(Default)]
struct Uses {
    paths: Vec<Vec<String>>,
    methods: Vec<(usize, String)>,
    /// The type of the `impl` around.
    within: Option<usize>,
}

impl Uses {
    fn tree(&mut self, tree: &UseTree, before: &[String]) {
        let mut path = before.to_vec();
        match tree {
            UseTree::Path(next) => {
                path.push(next.ident.to_string());
                self.tree(&next.tree, &path);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(tree, &path)),
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                self.paths.push(path);
            }
            UseTree::Rename(name) => {
                path.push(name.ident.to_string());
                self.paths.push(path);
            }
            UseTree::Glob(_) => self.paths.push(path),
        }
    }

    fn by_name(&self, name: &str) -> Option<usize> {
        if name == "self" {
            self.within
        } else {
            named(name)
        }
    }

    /// Which of the types that are spread an expression is of.
    fn type_of(&self, receiver: &Expr) -> Option<usize> {
        match receiver {
            Expr::Path(path) => self.by_name(&path.path.get_ident()?.to_string()),
            Expr::Field(field) => match &field.member {
                Member::Named(name) => named(&name.to_string()),
                Member::Unnamed(_) => None,
            },
            Expr::Paren(inner) => self.type_of(&inner.expr),
            Expr::Reference(inner) => self.type_of(&inner.expr),
            Expr::Unary(inner) => self.type_of(&inner.expr),
            // `self.state.lock()`, or another way to take it.
            Expr::MethodCall(call) => {
                let method = call.method.to_string();
                let takes = method.starts_with("lock") || method == "look";
                takes.then(|| self.type_of(&call.receiver))?
            }
            _ => None,
        }
    }

    /// What is called in a macro: its text is not known to be expressions.
    fn text(&mut self, text: &str) {
        let text: String = text.split_whitespace().collect();
        let word = |c: char| c.is_alphanumeric() || c == '_';
        for (at, _) in text.match_indices('.') {
            let before = &text[..at];
            let start = before.rfind(|c| !word(c)).map_or(0, |at| at + 1);
            let after = &text[at + 1..];
            let end = after.find(|c| !word(c)).unwrap_or(after.len());
            if let Some(of) = self.by_name(&before[start..])
                && after[end..].starts_with('(')
            {
                self.methods.push((of, after[..end].to_owned()));
            }
        }
    }
}

impl<'a> Visit<'a> for Uses {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.tree(&item.tree, &[]);
        }
    }

    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        if !is_test(&item.attrs) {
            let before = std::mem::replace(&mut self.within, spread(item));
            visit::visit_item_impl(self, item);
            self.within = before;
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names = path.segments.iter().map(|part| part.ident.to_string());
        let names: Vec<String> = names.collect();
        if let [.., of, name] = &names[..] {
            let known = SPREAD.iter().position(|spread| spread == of);
            let own = self.within.filter(|_| of == "Self");
            if let Some(of) = known.or(own) {
                self.methods.push((of, name.clone()));
            }
        }
        self.paths.push(names);
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        if let Some(of) = self.type_of(&call.receiver) {
            self.methods.push((of, call.method.to_string()));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        self.text(&call.tokens.to_string());
        visit::visit_macro(self, call);
    }
}

fn uses(file: &syn::File) -> Uses {
    let mut found = Uses::default();
    found.visit_file(file);
    found
}

/// The methods of the types that are spread, and the folder of each.
fn methods(device: &Path) -> HashMap<(usize, String), String> {
    let mut found = HashMap::new();
    for file in sources(device) {
        for item in parse(&file).items {
            let Item::Impl(item) = item else { continue };
            let Some(of) = spread(&item).filter(|_| !is_test(&item.attrs)) else {
                continue;
            };
            for method in item.items {
                if let ImplItem::Fn(method) = method {
                    let name = method.sig.ident.to_string();
                    found.insert((of, name), room(device, &file));
                }
            }
        }
    }
    found
}

/// Where each name that `device` offers lies.
fn offered(device: &Path) -> HashMap<String, String> {
    let paths = uses(&parse(&device.join("mod.rs"))).paths;
    let mut found = HashMap::new();
    for path in paths {
        if let [folder, name] = &path[..] {
            found.insert(name.clone(), folder.clone());
        }
    }
    found
}

/// The names after `device` in a path of a file there, if it leads there.
fn below_device<'a>(path: &'a [String], device: &Path, file: &Path) -> Option<&'a [String]> {
    let depth = file
        .strip_prefix(device)
        .expect("below")
        .components()
        .count();
    let own = if file.ends_with("mod.rs") {
        depth - 1
    } else {
        depth
    };
    let up = path.iter().take_while(|name| *name == "super").count();
    if up > 0 {
        return (up == own).then(|| &path[up..]);
    }
    match path {
        [first, second, rest @ ..] if first == "crate" && second == "device" => Some(rest),
        _ => None,
    }
}

#[test]
fn modules_use_only_those_above_them() {
    let top = root();
    let rows = rows(&top.join("lib.rs"));
    assert!(rows.len() > 20, "the list was read: {rows:?}");
    let mut wrong = Vec::new();
    for file in sources(&top) {
        let own = room(&top, &file);
        let Some(row) = rows.get(&own).filter(|_| !FREE.contains(&own.as_str())) else {
            assert!(
                own == "lib" || FREE.contains(&own.as_str()),
                "{own} is in no row"
            );
            continue;
        };
        for path in uses(&parse(&file)).paths {
            if let [first, module, ..] = &path[..]
                && first == "crate"
                && rows.get(module).is_some_and(|used| used > row)
            {
                wrong.push(format!("{}: {}", file.display(), path.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "used from above:\n{}", wrong.join("\n"));
}

#[test]
fn folders_of_a_device_call_only_those_above_them() {
    let device = root().join("device");
    let rows = rows(&device.join("mod.rs"));
    let (methods, offered) = (methods(&device), offered(&device));
    assert!(methods.len() > 200, "{} methods", methods.len());
    let mut wrong = Vec::new();
    for file in sources(&device) {
        let own = room(&device, &file);
        let Some(row) = rows.get(&own) else {
            assert_eq!(own, "mod", "in no row");
            continue;
        };
        let uses = uses(&parse(&file));
        let above = |room: &str| rows.get(room).is_some_and(|used| used > row);
        for method in uses.methods {
            if methods.get(&method).is_some_and(|room| above(room)) {
                wrong.push(format!("{}: {}", file.display(), method.1));
            }
        }
        // Where the state is made of its parts it names them.
        for path in uses.paths.iter().filter(|_| own != "state") {
            let Some([name, ..]) = below_device(path, &device, &file) else {
                continue;
            };
            if above(name) || offered.get(name).is_some_and(|room| above(room)) {
                wrong.push(format!("{}: {}", file.display(), path.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "called from above:\n{}", wrong.join("\n"));
}

#[test]
fn calls_are_found_however_they_are_written() {
    let text = "impl State { fn f(&self) {
        self.one(); (*state).two(); Self::three(self); assert!(self.four() > 0);
    } }
    impl DeviceAllocator { fn g(&self) { self.state.lock().five(); device.six(); other.seven(); } }";
    let found = uses(&syn::parse_file(text).expect("parsed")).methods;
    let mut found: Vec<(usize, &str)> = found.iter().map(|(of, name)| (*of, &name[..])).collect();
    found.retain(|(_, name)| *name != "lock");
    let state = ["one", "two", "three", "four", "five"].map(|name| (0, name));
    assert_eq!(found, [&state[..], &[(1, "six")]].concat());
}

#[test]
fn paths_are_followed_up_and_down() {
    let device = Path::new("/src/device");
    let below = |path: &str, file: &str| {
        let path: Vec<String> = path.split("::").map(str::to_owned).collect();
        below_device(&path, device, &device.join(file)).map(|rest| rest.join("::"))
    };
    assert_eq!(
        below("crate::device::hot", "blocks/a.rs").as_deref(),
        Some("hot")
    );
    assert_eq!(
        below("super::super::hot::x", "blocks/a.rs").as_deref(),
        Some("hot::x")
    );
    assert_eq!(below("super::hot", "damage.rs").as_deref(), Some("hot"));
    assert_eq!(below("super::hot", "blocks/mod.rs").as_deref(), Some("hot"));
    assert_eq!(below("super::hot", "blocks/a.rs"), None);
    assert_eq!(below("crate::block", "blocks/a.rs"), None);
}
