//! The lines of a function, as they are written.

/// The mark of lines of a [`Body`] without a node.
pub(crate) const NO_NODE: u32 = u32::MAX;

/// The text of a function's body.
///
/// Two forms: final, indented and with the node of each line beside it; or as the list of pieces
/// that a host's transformer of bodies works on, in which a comment marks where the code of each
/// node begins, as torch.fx has it.
pub(crate) struct Body {
    pub(crate) text: String,
    start: usize,
    form: Form,
    node: u32,
}

enum Form {
    Final { lines: Vec<u32> },
    Pieces { ends: Vec<usize> },
}

impl Body {
    /// A body in its final form, to follow `head`, which ends in a line break.
    pub(crate) fn after(mut head: String, lines: usize) -> Self {
        head.push_str("    ");
        Self {
            start: head.len(),
            text: head,
            form: Form::Final {
                lines: Vec::with_capacity(lines),
            },
            node: NO_NODE,
        }
    }

    /// A body in pieces.
    pub(crate) fn in_pieces() -> Self {
        Self {
            text: String::new(),
            start: 0,
            form: Form::Pieces { ends: Vec::new() },
            node: NO_NODE,
        }
    }

    /// Begins the code of the `index`-th node.
    #[inline]
    pub(crate) fn begin(&mut self, index: usize) {
        self.node = u32::try_from(index).unwrap_or(NO_NODE);
        if let Form::Pieces { .. } = self.form {
            self.text.push_str("# COUNTER: ");
            self.text.push_str(&index.to_string());
            self.text.push('\n');
            self.cut();
        }
    }

    /// Ends a line.
    #[inline]
    pub(crate) fn end_line(&mut self) {
        match &mut self.form {
            Form::Pieces { .. } => self.text.push('\n'),
            Form::Final { lines } => {
                lines.push(self.node);
                // Empty lines are not shown before the first other one.
                if self.text.len() > self.start {
                    self.text.push_str("\n    ");
                }
            }
        }
    }

    /// Appends text of the host, which may have several lines.
    pub(crate) fn push_lines(&mut self, text: &str) {
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                self.end_line();
            }
            self.text.push_str(line);
        }
    }

    /// Ends a piece, if there is anything in it.
    #[inline]
    pub(crate) fn cut(&mut self) {
        if let Form::Pieces { ends } = &mut self.form
            && ends.last().copied().unwrap_or(0) < self.text.len()
        {
            ends.push(self.text.len());
        }
    }

    /// Leaves an empty piece, for the host to fill.
    pub(crate) fn leave_piece(&mut self) {
        self.cut();
        if let Form::Pieces { ends } = &mut self.form {
            ends.push(self.text.len());
        }
    }

    /// Number of pieces ended.
    pub(crate) fn pieces(&self) -> usize {
        match &self.form {
            Form::Final { .. } => 0,
            Form::Pieces { ends } => ends.len(),
        }
    }

    /// The text, and the node of each line.
    pub(crate) fn into_lines(self) -> (String, Vec<u32>) {
        let mut lines = match self.form {
            Form::Final { lines } => lines,
            Form::Pieces { .. } => Vec::new(),
        };
        lines.push(self.node);
        (self.text, lines)
    }

    /// The text, and the end of each piece.
    pub(crate) fn into_pieces(self) -> (String, Vec<usize>) {
        match self.form {
            Form::Final { .. } => (self.text, Vec::new()),
            Form::Pieces { ends } => (self.text, ends),
        }
    }
}
