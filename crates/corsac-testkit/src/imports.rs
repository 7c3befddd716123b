//! Imports between the modules of a crate, read from its source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, UseTree};

/// The modules of a crate and those that each imports: by `use`, or by a path in its code. Unit
/// tests are left out, and so are paths in macros. What is imported through a re-export counts as imported from where it is
/// defined.
#[derive(Debug)]
pub struct Imports(BTreeMap<String, BTreeSet<String>>);

impl Imports {
    /// The imports of the crate whose source is in the folder `source`.
    ///
    /// # Panics
    /// If it cannot be read, or is no Rust.
    #[must_use]
    pub fn of_crate(source: &Path) -> Self {
        let mut modules = BTreeMap::new();
        read(source, "crate", &mut modules);
        let resolver = Resolver(&modules);
        let imports = modules.iter().map(|(module, own)| {
            let found = own.paths.iter();
            let found = found.filter_map(|path| resolver.module_of(path, 0));
            let others = found.filter(|other| other != module && other != "crate");
            (module.clone(), others.collect())
        });
        Self(imports.collect())
    }

    /// Modules with those that they import.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &BTreeSet<String>)> {
        self.0.iter().map(|(module, all)| (module.as_str(), all))
    }

    /// Circles of imports that are more than a module and its children.
    #[must_use]
    pub fn circles(&self) -> BTreeSet<BTreeSet<&str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> = self
            .iter()
            .map(|(module, _)| (module, self.reached(module)))
            .collect();
        let circle = |(&module, all): (&&str, &BTreeSet<&'_ str>)| -> BTreeSet<&str> {
            let back = |other: &&str| reached[other].contains(module);
            self.0
                .keys()
                .map(String::as_str)
                .filter(|other| all.contains(other) && back(other))
                .collect()
        };
        let circles = reached.iter().map(circle);
        circles.filter(|circle| !is_family(circle)).collect()
    }

    /// Modules that `from` imports, directly or through others.
    fn reached(&self, from: &str) -> BTreeSet<&str> {
        let (mut seen, mut rest) = (BTreeSet::new(), vec![from]);
        while let Some(module) = rest.pop() {
            for next in &self.0[module] {
                if seen.insert(next.as_str()) {
                    rest.push(next);
                }
            }
        }
        seen
    }
}

/// Whether the modules are a parent and its children, or none.
fn is_family(modules: &BTreeSet<&str>) -> bool {
    let is_of = |family: &str| {
        let mut modules = modules.iter();
        modules.all(|&own| own == family || parent(own) == family)
    };
    modules
        .first()
        .is_none_or(|&first| is_of(first) || is_of(parent(first)))
}

fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(above, _)| above)
}

/// Paths of a module, from the root of the crate.
#[derive(Default)]
struct Module {
    path: String,
    /// Those that it imports or names.
    paths: Vec<String>,
    /// Those of the names that it imports, by name.
    names: BTreeMap<String, String>,
}

/// Adds the modules in `folder`, which is `path`.
fn read(folder: &Path, path: &str, modules: &mut BTreeMap<String, Module>) {
    for entry in fs::read_dir(folder).expect("a folder of source") {
        let file = entry.expect("an entry of a folder").path();
        let name = file.file_stem().and_then(|name| name.to_str());
        let name = name.expect("a name in UTF-8");
        if name == "tests" {
            continue;
        }
        let own = match name {
            "mod" | "lib" => path.to_owned(),
            name => format!("{path}::{name}"),
        };
        if file.is_dir() {
            read(&file, &own, modules);
        } else if file.extension().is_some_and(|own| own == "rs") {
            let text = fs::read_to_string(&file).expect("a file in UTF-8");
            let text = syn::parse_file(&text);
            let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let mut module = Module {
                path: own.clone(),
                ..Module::default()
            };
            module.visit_file(&text);
            modules.insert(own, module);
        }
    }
}

impl Module {
    /// A path in the module, from the root of the crate.
    fn absolute(&self, path: &str) -> String {
        let (mut from, mut rest) = (self.path.as_str(), path);
        while let Some(above) = rest.strip_prefix("super::") {
            from = from.rsplit_once("::").map_or("crate", |(above, _)| above);
            rest = above;
        }
        rest = rest.strip_prefix("self::").unwrap_or(rest);
        match rest.starts_with("crate::") {
            true => rest.to_owned(),
            false => format!("{from}::{rest}"),
        }
    }

    fn add_imports(&mut self, tree: &UseTree, prefix: &str) {
        let mut import = |path: String, name: String| {
            let path = self.absolute(&path);
            self.names.insert(name, path.clone());
            self.paths.push(path);
        };
        match tree {
            UseTree::Path(path) => {
                let prefix = format!("{prefix}{}::", path.ident);
                self.add_imports(&path.tree, &prefix);
            }
            UseTree::Name(name) if name.ident == "self" => {
                let path = prefix.trim_end_matches(':').to_owned();
                let name = path.rsplit("::").next().unwrap_or_default().to_owned();
                import(path, name);
            }
            UseTree::Name(name) => {
                import(format!("{prefix}{}", name.ident), name.ident.to_string())
            }
            UseTree::Rename(name) => {
                import(format!("{prefix}{}", name.ident), name.rename.to_string());
            }
            UseTree::Glob(_) => import(prefix.trim_end_matches(':').to_owned(), "*".to_owned()),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_imports(tree, prefix);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes: &[Attribute] = match item {
            Item::Mod(own) => &own.attrs,
            Item::Fn(own) => &own.attrs,
            Item::Use(own) => &own.attrs,
            Item::Impl(own) => &own.attrs,
            _ => &[],
        };
        let is_test = |attribute: &Attribute| {
            attribute.path().is_ident("cfg")
                && attribute
                    .parse_args::<syn::Ident>()
                    .is_ok_and(|condition| condition == "test")
        };
        if !attributes.iter().any(is_test) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_imports(&item.tree, "");
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let segments = path.segments.iter();
            let segments: Vec<_> = segments.map(|own| own.ident.to_string()).collect();
            let path = self.absolute(&segments.join("::"));
            self.paths.push(path);
        }
        visit::visit_path(self, path);
    }
}

struct Resolver<'m>(&'m BTreeMap<String, Module>);

impl Resolver<'_> {
    /// The module in which the item is defined that `path` leads to.
    fn module_of(&self, path: &str, depth: usize) -> Option<String> {
        let mut module = path;
        while !self.0.contains_key(module) {
            module = module.rsplit_once("::")?.0;
        }
        let rest = path[module.len()..].trim_start_matches("::");
        let (name, below) = rest.split_once("::").unwrap_or((rest, ""));
        let through = self.0[module].names.get(name);
        // Names may be imported in a circle of re-exports, as those of a parent and its child.
        let through = through.filter(|target| depth < 8 && *target != path);
        let through = through.and_then(|target| {
            let target = format!("{target}::{below}");
            self.module_of(target.trim_end_matches(':'), depth + 1)
        });
        through.or_else(|| Some(module.to_owned()))
    }
}
