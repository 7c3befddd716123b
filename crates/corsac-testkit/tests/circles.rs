//! Modules import each other in one direction, in every crate of the workspace; a module and its
//! children may import each other.

use std::fs;
use std::path::Path;

use corsac_testkit::imports::Imports;

#[test]
fn circles_of_imports_are_a_parent_and_its_children() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let crates = fs::read_dir(crates.expect("the crates")).expect("the crates");
    let (mut modules, mut circles) = (0, Vec::new());
    for entry in crates {
        let source = entry.expect("an entry of a folder").path().join("src");
        let imports = Imports::of_crate(&source);
        modules += imports.iter().count();
        let found = imports.circles();
        let found = found
            .into_iter()
            .map(|circle| format!("{}: {circle:#?}", source.display()));
        circles.extend(found);
    }
    assert!(modules > 300, "{modules} modules");
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}
