//! Python source from a graph.
