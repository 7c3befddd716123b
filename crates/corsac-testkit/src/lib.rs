//! Graph builders, random graphs and the filetest runner (unpublished).
