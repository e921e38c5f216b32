//! Whether the core's modules depend on each other as they say: each on those above it in the list of `src/lib.rs`, and
//! within `device` each folder on those above it in the list of `src/device/mod.rs`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItem, Item, ItemImpl, ItemMod, Meta, Type, UseTree};

/// The types whose methods are spread over the folders of `device`.
const SPREAD: [&str; 2] = ["State", "DeviceAllocator"];
/// What their values are called, `self` aside, and the fields that hold them.
const NAMES: [&str; 4] = ["state", "device", "guarded", "guard"];
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

fn spread(item: &ItemImpl) -> bool {
    let Type::Path(path) = &*item.self_ty else {
        return false;
    };
    let last = path.path.segments.last();
    last.is_some_and(|last| SPREAD.iter().any(|name| last.ident == name))
}

/// What a file uses: paths that start with `crate`, and methods of the types that are spread.
#[derive(Default)]
struct Uses {
    paths: Vec<Vec<String>>,
    methods: Vec<String>,
    within: bool,
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

    /// Whether an expression is a value of one of the types that are spread.
    fn is_spread(&self, receiver: &Expr) -> bool {
        match receiver {
            Expr::Path(path) => path.path.get_ident().is_some_and(|name| {
                (self.within && name == "self") || NAMES.iter().any(|known| name == known)
            }),
            Expr::Field(field) => match &field.member {
                syn::Member::Named(name) => NAMES.iter().any(|known| name == known),
                syn::Member::Unnamed(_) => false,
            },
            Expr::Paren(inner) => self.is_spread(&inner.expr),
            Expr::Reference(inner) => self.is_spread(&inner.expr),
            _ => false,
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
        if let [.., of, name] = &names[..]
            && (SPREAD.contains(&of.as_str()) || (self.within && of == "Self"))
        {
            self.methods.push(name.clone());
        }
        self.paths.push(names);
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        if self.is_spread(&call.receiver) {
            self.methods.push(call.method.to_string());
        }
        visit::visit_expr_method_call(self, call);
    }
}

fn uses(file: &Path) -> Uses {
    let mut found = Uses::default();
    found.visit_file(&parse(file));
    found
}

/// The methods of the types that are spread, and where each is.
fn methods(device: &Path) -> HashMap<String, Vec<PathBuf>> {
    let mut found: HashMap<String, Vec<PathBuf>> = HashMap::new();
    for file in sources(device) {
        for item in parse(&file).items {
            let Item::Impl(item) = item else { continue };
            if !spread(&item) || is_test(&item.attrs) {
                continue;
            }
            for method in item.items {
                if let ImplItem::Fn(method) = method {
                    let name = method.sig.ident.to_string();
                    found.entry(name).or_default().push(file.clone());
                }
            }
        }
    }
    found
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
        for path in uses(&file).paths {
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
    let methods = methods(&device);
    assert!(methods.len() > 200, "{} methods", methods.len());
    let mut wrong = Vec::new();
    for file in sources(&device) {
        let own = room(&device, &file);
        let Some(row) = rows.get(&own) else {
            assert!(
                ["mod", "tests"].contains(&own.as_str()),
                "{own} is in no row"
            );
            continue;
        };
        let uses = uses(&file);
        let above = |room: &str| rows.get(room).is_some_and(|used| used > row);
        for method in uses.methods {
            let at = methods.get(&method).map_or(&[][..], Vec::as_slice);
            if !at.is_empty() && at.iter().all(|at| above(&room(&device, at))) {
                wrong.push(format!("{}: {method}", file.display()));
            }
        }
        // Where the state is made of its parts it names them.
        for path in uses.paths.iter().filter(|_| own != "state") {
            if let [.., of, folder, _, _] | [.., of, folder, _] = &path[..]
                && of == "device"
                && above(folder)
            {
                wrong.push(format!("{}: {}", file.display(), path.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "called from above:\n{}", wrong.join("\n"));
}
