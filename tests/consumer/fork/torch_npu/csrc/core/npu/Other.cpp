// Stands for the tree's other files.
int other_file_of_the_tree() { return 1; }
