//! The graph: ids, nodes, order, uses, arguments, names, verifier, text form, matching and rewriting.
