use super::*;

const BEFORE: &str = "graph v1:
    %x = placeholder[target=x]
    %w = get_attr[target=w]
    %relu = call_function[target=torch.relu](args = (%x,), kwargs = {})
    %add = call_function[target=operator.add](args = (%relu, %w), kwargs = {})
    %mul = call_function[target=operator.mul](args = (%add, 2), kwargs = {})
    %sub = call_function[target=operator.sub](args = (%mul, 1), kwargs = {})
    %neg = call_method[target=neg](args = (%sub,), kwargs = {})
    %abs_1 = call_method[target=abs](args = (%neg,), kwargs = {})
    %exp = call_method[target=exp](args = (%abs_1,), kwargs = {})
    %output = output[target=output](args = (%exp,), kwargs = {})
";

fn diff(before: &str, after: &str) -> GraphDiff {
    let before = Graph::parse(before).unwrap();
    before.diff(&Graph::parse(after).unwrap())
}

fn edited(edits: &[(&str, &str)]) -> String {
    edits.iter().fold(BEFORE.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "{old}");
        text.replacen(old, new, 1)
    })
}

#[test]
fn equal_graphs_do_not_differ() {
    let same = diff(BEFORE, BEFORE);
    assert!(same.is_empty());
    assert_eq!(
        (same.to_string(), same.summary()),
        (String::new(), "no changes".into())
    );
    assert_eq!(same.entries.len(), 10);
    assert_eq!(same.entries[0].change, Change::Kept);
}

#[test]
fn a_replaced_node_is_removed_and_added() {
    let after = edited(&[
        (
            "%relu = call_function[target=torch.relu]",
            "%gelu = call_function[target=torch.gelu]",
        ),
        ("(%relu, %w)", "(%gelu, %w)"),
    ]);
    let diff = diff(BEFORE, &after);
    assert_eq!(diff.summary(), "1 added, 1 removed, 1 changed");
    assert_eq!(
        diff.to_string(),
        "--- before
+++ after
@@ -1,8 +1,8 @@
 graph():
     %x = placeholder[target=x]
     %w = get_attr[target=w]
-    %relu = call_function[target=torch.relu](args = (%x,), kwargs = {})
+    %gelu = call_function[target=torch.gelu](args = (%x,), kwargs = {})
-    %add = call_function[target=operator.add](args = (%relu, %w), kwargs = {})
+    %add = call_function[target=operator.add](args = (%gelu, %w), kwargs = {})
     %mul = call_function[target=operator.mul](args = (%add, 2), kwargs = {})
     %sub = call_function[target=operator.sub](args = (%mul, 1), kwargs = {})
     %neg = call_method[target=neg](args = (%sub,), kwargs = {})"
    );
}

#[test]
fn a_renamed_node_does_not_change_its_users() {
    let after = BEFORE.replace("%add", "%sum");
    let diff = diff(BEFORE, &after);
    assert_eq!(diff.summary(), "1 changed");
    let changed: Vec<_> = diff.changed().map(|entry| &entry.change).collect();
    assert_eq!(changed, [&Change::Changed(vec![Aspect::Name])]);
}

#[test]
fn changes_far_apart_are_shown_apart() {
    let after = edited(&[
        ("target=w]", "target=v]"),
        ("(%exp,), kwargs = {}", "(%exp,), kwargs = {k: 1}"),
    ]);
    let diff = diff(BEFORE, &after);
    assert_eq!(diff.summary(), "2 changed");
    let text = diff.to_string();
    let heads: Vec<_> = text.lines().filter(|line| line.starts_with('@')).collect();
    assert_eq!(heads, ["@@ -1,6 +1,6 @@", "@@ -8,4 +8,4 @@"]);
    let aspects: Vec<_> = diff.changed().map(|e| e.change.clone()).collect();
    assert_eq!(
        aspects,
        [
            Change::Changed(vec![Aspect::Target]),
            Change::Changed(vec![Aspect::Kwargs])
        ]
    );
}

#[test]
fn a_moved_node_is_shown_in_both_places() {
    let mut after = Graph::parse(BEFORE).unwrap();
    let ids: Vec<_> = after.nodes().collect();
    after.move_before(ids[1], ids[0]).unwrap();
    let diff = Graph::parse(BEFORE).unwrap().diff(&after);
    assert_eq!(diff.summary(), "1 moved");
    assert_eq!(diff.changed().count(), 0);
    let text = diff.to_string();
    assert!(text.contains("\n+    %w = get_attr") ^ text.contains("\n+    %x = placeholder"));
    assert!(text.contains("\n-    %w = get_attr") ^ text.contains("\n-    %x = placeholder"));
}

#[test]
fn a_diff_of_nothing() {
    let empty = Graph::new();
    let graph = Graph::parse("graph v1:\n%x = placeholder[target=x]").unwrap();
    assert_eq!(
        empty.diff(&graph).to_string(),
        "--- before\n+++ after\n@@ -1,1 +1,2 @@\n graph():\n+    %x = placeholder[target=x]"
    );
    assert_eq!(graph.diff(&empty).summary(), "1 removed");
}
