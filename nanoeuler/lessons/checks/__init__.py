"""The checks of each lesson's exercises, a module per lesson, a function per exercise."""
