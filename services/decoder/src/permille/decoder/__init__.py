"""permille decoder: Turns stored sessions into tables and answers questions about them."""
