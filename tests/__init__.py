"""poot's tests. They mirror src/poot; house/ holds the rules that the code keeps as a whole."""
